"""Long results over HTTP on the full path: encoded once, whatever carries them."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp_types import JSONRPCResponse
from starlette.middleware import Middleware
from support.harness import config, lean
from support.memory import build_aggregator
from support.serving import served
from support.wire import PATIENCE, text_of

from fastmcp_aggregator.front.http import rest
from fastmcp_aggregator.front.http.boundary import SendingLongResults
from fastmcp_aggregator.front.http.connection import Disconnects, _Connection
from fastmcp_aggregator.front.http.resume.event_store import KeptEvents
from fastmcp_aggregator.protocol.long_texts import LongResult

TEXT = 'Grün sagte: "ja"\n' * 60_000
PIECE = 512 * 1024
RESULT = {"content": [{"type": "text", "text": TEXT}]}


class Seen:
    """An ASGI layer that keeps what is sent."""

    bodies: list[bytes]

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def seen(message: Any) -> None:
            self.bodies.append(message.get("body", b""))
            await send(message)

        await self.app(scope, receive, seen)


@pytest.fixture(autouse=True)
def _nothing_is_seen_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seen, "bodies", [], raising=False)


def kept(encode: Any, texts: list[str]) -> Any:
    def keeping(*args: Any, **options: Any) -> Any:
        encoded = encode(*args, **options)
        texts.append(str(encoded))
        return encoded

    return keeping


@pytest.mark.parametrize("reconnect_wait", [0, 30])
@pytest.mark.parametrize("way", ["legacy", "modern", "json"])
async def test_a_long_answer_is_encoded_by_nothing_that_carries_it(
    way: str, reconnect_wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    for owner, name in ((JSONRPCResponse, "model_dump_json"), (JSONRPCResponse, "model_dump"), (rest, "to_json")):
        monkeypatch.setattr(owner, name, kept(getattr(owner, name), texts))
    app = build_aggregator(config(a=lean()), fast_path=False, reconnect_wait=reconnect_wait)
    async with served(Seen(app.http_app(path="/mcp"))) as front:
        if way == "json":
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                params = {"name": "a:echo", "arguments": {"text": TEXT}}
                answer = text_of((await http.post(f"{front.url}/tools/call", json=params)).json())
        else:
            answer = await (await front.connect(modern=way == "modern")).call("a:echo", text=TEXT)
    assert answer["arguments"] == {"text": TEXT}
    assert texts
    assert max(map(len, texts)) < PIECE
    assert sum(map(len, Seen.bodies)) > 2 * PIECE


@pytest.mark.parametrize("modern", [False, True])
async def test_a_layer_of_the_embedding_program_sees_the_answer_itself(modern: bool) -> None:
    app = build_aggregator(config(a=lean()), fast_path=False)
    async with served(app, middleware=[Middleware(Seen)]) as front:
        answer = await (await front.connect(modern=modern)).call("a:echo", text=TEXT)
    assert answer["arguments"] == {"text": TEXT}
    assert sum(map(len, Seen.bodies)) > 2 * PIECE


async def test_what_is_kept_for_a_client_that_comes_back_is_the_answer_itself() -> None:
    long, events = LongResult.of(json.dumps(RESULT).encode()), KeptEvents(30)
    event_id = await events.store_event("1", JSONRPCResponse(jsonrpc="2.0", id=1, result=long.as_result()))
    found = events.logs.find(event_id)
    assert found is not None
    [(_, data)] = found[0].after(-1)
    assert json.loads(data) == {"jsonrpc": "2.0", "id": 1, "result": RESULT}


@pytest.mark.parametrize("result", [None, {"text": "short"}, {"text": "\ud800" * PIECE}, {"text": TEXT, "x": object()}])
async def test_nothing_stands_for_what_is_short_or_cannot_be_encoded(result: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        connection = next(value for value in scope.values() if isinstance(value, _Connection))
        assert connection.shortened(result) is result
        await send({"type": "http.response.body", "body": b"as it is"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await Disconnects(app, sender=SendingLongResults)({"type": "http", "method": "POST"}, asyncio.Event().wait, send)
    assert sent == [{"type": "http.response.body", "body": b"as it is"}]


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_long_answer_in_json_tells_its_length(version: bytes) -> None:
    async with served(build_aggregator(config(a=lean()), fast_path=False)) as front:
        place = urlsplit(front.url)
        body = json.dumps({"name": "a:echo", "arguments": {"text": "x" * 400_000}}).encode()
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(
            b"POST %b/tools/call HTTP/%b\r\nHost: 127.0.0.1:%d\r\n" % (place.path.encode(), version, place.port)
        )
        writer.write(
            b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)
        )
        head, _, answer = (await asyncio.wait_for(reader.read(), PATIENCE)).partition(b"\r\n\r\n")
        assert b"\r\ncontent-length: %d" % len(answer) in head
        assert b"transfer-encoding" not in head
        assert "x" * 400_000 in json.loads(answer)["content"][0]["text"]
        writer.close()
