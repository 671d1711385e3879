"""Large messages of a remote child pass beside the SDK's reader: whole, each in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from support.harness import config, connected
from support.remote_server import Request, remote_server

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.children.http.large_messages import LARGE, LargeMessages

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
def test_what_stands_for_a_message_is_short_and_is_exchanged_for_it_once(message: dict[str, Any]) -> None:
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
    assert large.restored(stand_in) is stand_in


def test_what_is_short_or_no_message_is_not_kept() -> None:
    large = LargeMessages()
    assert large.in_place_of(b"{}") == b"{}"
    for text in (b"[" + b"1," * LARGE + b"1]", b"\xff" * LARGE * 2, b'{"x": "' + b"x" * LARGE):
        short = large.in_place_of(text)
        assert len(short) < 300
        with pytest.raises(ValueError, match="JSONRPC"):
            jsonrpc_message_adapter.validate_json(short)
    assert large._kept == {}


def test_a_child_cannot_ask_for_what_is_kept() -> None:
    large = LargeMessages()
    large.in_place_of(encoded(MESSAGES["a result"]))
    for mark in ("1", "/1", f"{'0' * 32}/1", None, ["1"]):
        forged = JSONRPCResponse(jsonrpc="2.0", id=7, result={"fastmcp_aggregator": mark})
        assert large.restored(forged) is forged


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
