"""Large messages of a remote child pass beside the SDK's reader: whole, each in its place."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Literal

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from support.harness import PATIENCE, config, connected
from support.remote_server import Request, remote_server

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.children.http.client import RemoteHttp
from fastmcp_aggregator.children.http.credentials import Credentials
from fastmcp_aggregator.children.http.large_messages import LARGE, LargeMessages

MIB = 1024**2
LONG = "é\n" * LARGE
CONTENT = {"x": [LONG, {"y": None}], "_meta": {}}
MESSAGES: dict[str, dict[str, Any]] = {
    "a result": {"id": "7", "result": CONTENT},
    "an error": {"id": 7, "error": {"code": -5, "message": LONG, "data": CONTENT}},
    "an error of nobody": {"id": None, "error": {"code": -5, "message": "m", "data": CONTENT}},
    "a request": {"id": "q", "method": "roots/list", "params": CONTENT},
    "a notification": {"method": "notifications/message", "params": CONTENT},
}


def encoded(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode()


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
async def test_what_stands_for_a_message_is_short_and_is_exchanged_for_it_once(message: dict[str, Any]) -> None:
    large, text = LargeMessages(), encoded(message)
    short = large.in_place_of(text)
    assert len(short) < 300
    stand_in = jsonrpc_message_adapter.validate_json(short)
    expected = jsonrpc_message_adapter.validate_json(text)
    assert type(stand_in) is type(expected)
    if isinstance(stand_in, JSONRPCResponse | JSONRPCError) and isinstance(expected, JSONRPCResponse | JSONRPCError):
        assert stand_in.id == message["id"]
        stand_in.id = expected.id = 12  # the SDK knows the request by another
    assert large.restored(stand_in) == expected
    assert large.restored(stand_in) is None


async def test_what_is_short_or_no_message_is_not_kept() -> None:
    large = LargeMessages()
    assert large.in_place_of(b"{}") == b"{}"
    for text in (b"[" + b"1," * LARGE + b"1]", b"\xff" * LARGE * 2, b'{"x": "' + b"x" * LARGE):
        short = large.in_place_of(text)
        assert len(short) < 300
        with pytest.raises(ValueError, match="JSONRPC"):
            jsonrpc_message_adapter.validate_json(short)
    assert large._kept == {}


async def test_a_child_cannot_ask_for_what_is_kept() -> None:
    large = LargeMessages()
    large.in_place_of(encoded(MESSAGES["a result"]))
    for mark in ("1", "/1", f"{'0' * 32}/1", None, ["1"]):
        forged = JSONRPCResponse(jsonrpc="2.0", id=7, result={"fastmcp_aggregator": mark})
        assert large.restored(forged) is forged


async def test_a_message_is_forgotten_with_the_next_of_its_task_and_with_its_end() -> None:
    large = LargeMessages()

    async def read() -> None:
        for _ in range(3):
            large.in_place_of(encoded(MESSAGES["a notification"]))
            assert len(large._kept) == 2

    large.in_place_of(encoded(MESSAGES["a result"]))
    await asyncio.create_task(read())
    await asyncio.sleep(0)  # the end of a task is told in the turn after it
    assert [type(message) for message in large._kept.values()] == [JSONRPCResponse]
    assert len(large._latest) == 1


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[LargeMessages]:
    """What is kept of each connection."""
    made: list[LargeMessages] = []

    def make() -> LargeMessages:
        made.append(LargeMessages())
        return made[-1]

    monkeypatch.setattr("fastmcp_aggregator.children.http.client.LargeMessages", make)
    return made


NOTE = encoded(MESSAGES["a notification"]).decode()
ODD = encoded({"id": 1, "method": "x", "error": {"code": -5, "message": LONG}, "params": CONTENT}).decode()
EVENT = "event: message \ndata: " + NOTE.replace("é", "e") + "\n\n"


@pytest.mark.parametrize(
    ("status", "body", "media_type"),
    [(202, NOTE, "application/json"), (500, ODD, "application/json"), (200, EVENT * 3, "text/event-stream")],
    ids=["no answer", "an error that is none", "events"],
)
async def test_nothing_is_kept_of_a_request_that_is_over(
    connections: list[LargeMessages], status: int, body: str, media_type: str
) -> None:
    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            await request.respond(status, body, content_type=media_type)
        return request.is_bad

    async with (
        remote_server(misbehave) as server,
        build_aggregator(config(r={"url": server.url})) as app,
        connected(app) as client,
    ):
        assert "error" in await client.send("tools/call", {"name": "r:bad"})
        await client.send("tools/call", {"name": "r:echo"})
        assert [large._kept for large in connections] == [{}]


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_of_what_no_request_waits_for_little_is_read_and_nothing_kept(transport: Literal["http", "sse"]) -> None:
    """A notification, an answer of ours to a request of the server, the stream of the session, and its end."""
    written = 0

    async def misbehave(request: Request) -> bool:
        nonlocal written
        await request.start(200, content_type="application/json", content_length=str(1000 * MIB))
        with suppress(OSError):
            while written < 200 * MIB:
                request.writer.write(b"x" * MIB)
                await request.writer.drain()
                written += MIB
        return True

    async with remote_server(misbehave) as server:
        remote = RemoteHttp(server.url, Credentials({}), transport=transport, limit=100 * MIB)
        async with remote.client() as client:
            for message in ({"method": "notifications/initialized"}, {"id": 1, "result": {}}):
                response = await client.post(server.url, content=encoded(message))
                assert (response.status_code, response.content) == (202, b"")
            assert (await client.delete(server.url)).status_code == 204
            if transport == "http":
                assert (await client.get(server.url)).content == b""
    assert written < 100 * MIB
    assert remote.failure is None
    assert remote.large_messages._kept == {}


@pytest.mark.parametrize("begun", [False, True], ids=["not begun", "begun"])
async def test_a_response_ends_when_its_request_is_cancelled(begun: bool) -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            if begun:
                await request.start(200, content_type="application/json", content_length=str(MIB))
            asked.set()
            await over.wait()
        return request.is_bad

    async with remote_server(misbehave) as server:
        remote = RemoteHttp(server.url, Credentials({}), transport="http", limit=MIB)
        async with remote.client() as client:
            request = encoded({"id": 7, "method": "tools/call", "params": {"name": "bad"}})
            call = asyncio.create_task(client.post(server.url, content=request))
            await asked.wait()
            notification = encoded({"method": "notifications/cancelled", "params": {"requestId": 7}})
            assert (await client.post(server.url, content=notification)).status_code == 202
            answer = (await asyncio.wait_for(call, PATIENCE)).json()
            assert answer["id"] == 7
            assert "error" in answer
            assert remote.failure is None
        over.set()


BODIES = {"json": "ANSWER", "an event": "data: ANSWER\n\n", "events": "event: other\ndata: ANSWER\n\ndata: ANSWER\n\n"}


@pytest.mark.parametrize("kind", ["a result", "an error"])
@pytest.mark.parametrize("body", BODIES, ids=BODIES)
async def test_a_large_answer_arrives_whole(body: str, kind: str) -> None:
    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            answer = encoded({**MESSAGES[kind], "id": request.message["id"]}).decode()
            media_type = "application/json" if body == "json" else "text/event-stream"
            await request.respond(200, BODIES[body].replace("ANSWER", answer), content_type=media_type)
        return request.is_bad

    async with (
        remote_server(misbehave) as server,
        build_aggregator(config(r={"url": server.url})) as app,
        connected(app) as client,
    ):
        answer = await client.send("tools/call", {"name": "r:bad"})
        if kind == "a result":
            assert answer["result"]["x"] == CONTENT["x"]
        else:
            assert answer["error"] == {"code": -5, "message": LONG, "data": CONTENT}
