"""Servers' messages of many small parts: refused by their bytes, before they are parsed; the session lives on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from support.harness import PATIENCE, RawClient, config, connected
from support.remote_server import Misbehaviour, RemoteServer, Request, remote_server
from support.sessions import Unheard, session_with

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.session.parts import TOO_MANY_PARTS, in_place_of, is_too_large
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.parts import ANSWER_PARTS_LIMIT

MANY = "[" + "[]," * ANSWER_PARTS_LIMIT + "0]"
DEEP = "[" * 300_000 + "]" * 300_000
TAIL = {"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": TOO_MANY_PARTS}}

LARGE: dict[str, Any] = {
    "text": {"content": [{"type": "text", "text": '{"a": [1, 2]}, ' * 400_000}]},
    "image": {"content": [{"type": "image", "data": "iVBOR" * 800_000, "mimeType": "image/png"}]},
    "links": {
        "content": [
            {"type": "resource_link", "uri": f"demo://x/{n}", "name": "x", "mimeType": "text/plain", "size": 1}
            for n in range(10_000)
        ]
    },
    "rows": {"structuredContent": {"rows": [{"id": n, "name": "Ann", "n": 1.5} for n in range(20_000)]}},
}


@pytest.mark.parametrize("result", LARGE.values(), ids=LARGE)
def test_what_real_servers_answer_is_not_too_large(result: Any) -> None:
    assert not is_too_large(json.dumps({"jsonrpc": "2.0", "id": 7, "result": result}).encode())


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ('{"jsonrpc":"2.0","id":7,"result":{"id":8,"x":MANY}}', TAIL),
        ('{"result":{"id":8,"x":MANY},"jsonrpc":"2.0","id":7}', TAIL),
        ('{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x","data":MANY}}', TAIL),
        ('{"jsonrpc":"2.0","id":"7","result":{"x":MANY}}', {**TAIL, "id": "7"}),
        ('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":MANY}}', None),
        ('{"jsonrpc":"2.0","error":{"code":1,"message":"x","data":MANY}}', None),
        (
            '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":MANY}}',
            {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        ),
        (
            '{"jsonrpc":"2.0","id":7,"method":"roots/list","params":{"x":MANY}}',
            {"jsonrpc": "2.0", "id": 7, "method": "request with too many values"},
        ),
    ],
)
def test_in_its_place_is_what_its_envelope_tells(message: str, short: Any) -> None:
    text = message.replace("MANY", MANY).encode()
    assert is_too_large(text)
    found = in_place_of(text)
    assert (None if found is None else json.loads(found)) == short


@pytest.mark.parametrize("message", ["MANY", '{"id":7,"result":MANY', '{"id":7,"result":DEEP}'])
def test_what_is_no_object_that_can_be_read_is_told(message: str) -> None:
    text = message.replace("MANY", MANY).replace("DEEP", DEEP).encode()
    with pytest.raises(raw_json.Malformed):
        in_place_of(text)


# On stdio.

CHILD = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "n", "version": "1"},
        }
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif message.get("method") == "say":
        for text in message["params"]["texts"]:
            text = text.replace("MANY", "[" + "[]," * 100_000 + "0]").replace("DEEP", "[" * 200_000)
            print(text.replace("MINE", str(message["id"])), flush=True)
    elif "method" not in message:
        print(json.dumps({"jsonrpc": "2.0", "id": asked, "result": {"reply": message}}), flush=True)
    elif message.get("method") == "ask":
        asked = message["id"]
        print(message["params"]["text"].replace("MANY", "[" + "[]," * 100_000 + "0]"), flush=True)
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "none"}}))
        sys.stdout.flush()
"""
ENTRY = {"command": sys.executable, "args": ["-S", "-c", CHILD]}
FINE = '{"jsonrpc":"2.0","id":MINE,"result":{"fine":true}}'


class Changes(Unheard):
    """Keeps which lists have changed."""

    def __init__(self) -> None:
        self.kinds: set[Kind] = set()

    def lists_changed(self, kinds: frozenset[Kind]) -> None:
        self.kinds |= kinds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"jsonrpc":"2.0","id":MINE,"result":{"x":MANY}}', TOO_MANY_PARTS),
        ('{"result":{"x":MANY},"jsonrpc":"2.0","id":MINE}', TOO_MANY_PARTS),
        ('{"jsonrpc":"2.0","id":MINE,"error":{"code":1,"message":"x","data":MANY}}', TOO_MANY_PARTS),
        ('{"jsonrpc":"2.0","id":MINE,"result":{"x":DEEP', "response is not valid JSON-RPC"),
        ('{"jsonrpc":"2.0","id":MINE,"result":{"x":"\\ud800"}}', "response is not valid JSON-RPC"),
        ('{"jsonrpc":"2.0","id":MINE,"result":{"x":1', "response is not valid JSON-RPC"),
        ('{"jsonrpc":"2.0","id":MINE,"result":"no object"}', "response is not valid JSON-RPC"),
    ],
    ids=["result", "id last", "error", "deep", "half a pair", "cut off", "wrong shape"],
)
async def test_on_stdio_the_call_fails_at_once_and_the_session_lives_on(text: str, message: str) -> None:
    async with session_with(ENTRY, era="legacy") as session:
        with pytest.raises(MCPError) as caught:
            await asyncio.wait_for(session.request("say", {"texts": [text]}), PATIENCE)
        assert (caught.value.error.code, caught.value.error.message) == (-32603, message)
        assert await session.request("say", {"texts": [FINE]}) == {"fine": True}


async def test_on_stdio_a_notification_is_dropped_and_a_change_of_lists_is_told() -> None:
    heard = Changes()
    said = [
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":MANY}}',
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":MANY}}',
        "MANY",
        FINE,
    ]
    async with session_with(ENTRY, era="legacy", events=heard) as session:
        assert await session.request("say", {"texts": said}) == {"fine": True}
        assert heard.kinds == {Kind.TOOL}
        counters = session._transport.counters
        assert (counters.dropped_notifications, counters.ignored_lines) == (1, 1)


async def test_on_stdio_a_request_of_the_servers_is_answered_with_an_error() -> None:
    text = '{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"x":MANY}}'
    async with session_with(ENTRY, era="legacy") as session:
        reply = (await session.request("ask", {"text": text}))["reply"]
        assert (reply["id"], reply["error"]["code"]) == ("q", -32601)


# Remote.


def with_body(body: str, content_type: str = "application/json", status: int = 200) -> Misbehaviour:
    """This answer to calls of the tool `bad`, and no other."""

    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            text = body.replace("MINE", json.dumps(request.message["id"])).replace("MANY", MANY)
            await request.respond(status, text.replace("DEEP", DEEP), content_type=content_type)
        return request.is_bad

    return misbehave


@asynccontextmanager
async def reached(server: RemoteServer) -> AsyncIterator[tuple[Aggregator, RawClient]]:
    """An aggregator in front of the server, with a client."""
    async with build_aggregator(config(r={"url": server.url})) as app, connected(app) as client:
        yield app, client


ANSWER = '{"jsonrpc":"2.0","id":MINE,"result":{"x":MANY}}'
ERROR = '{"jsonrpc":"2.0","id":MINE,"error":{"code":1,"message":"x","data":MANY}}'
NOTE = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":MANY}}'
STREAM = "text/event-stream"


@pytest.mark.parametrize(
    "misbehave",
    [
        with_body(ANSWER),
        with_body(ERROR),
        with_body(ERROR, status=400),
        with_body(f"event: message\ndata: {ANSWER}\n\n", STREAM),
        with_body(f"data: {ERROR}\n\n", STREAM),
        with_body('data: {"jsonrpc":"2.0","id":MINE,"result":DEEP}\n\n', STREAM),
        with_body('data: {"jsonrpc":"2.0",\n' + "data: \n" * 50_000 + 'data: "id":MINE,"result":{}}\n\n', STREAM),
    ],
    ids=["json", "json error", "status", "event", "event error", "deep event", "event of many lines"],
)
async def test_over_http_the_call_fails_and_the_session_lives_on(misbehave: Misbehaviour) -> None:
    async with remote_server() as server, reached(server) as (app, client):
        server.misbehave = misbehave
        assert TOO_MANY_PARTS in (await client.error("tools/call", {"name": "r:bad"}))["message"]
        assert (await client.call("r:echo"))["host"]
        assert (server.sessions, app.health()["r"].restarts) == (1, 0)


async def test_over_http_a_notification_before_the_answer_is_dropped() -> None:
    fine = '{"jsonrpc":"2.0","id":MINE,"result":{"content":[]}}'
    async with remote_server() as server, reached(server) as (_, client):
        server.misbehave = with_body(f"event: message\ndata: {NOTE}\n\ndata: {fine}\n\n", STREAM)
        assert (await client.result("tools/call", {"name": "r:bad"}))["content"] == []
