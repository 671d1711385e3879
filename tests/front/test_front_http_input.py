"""What HTTP clients send that is odd, over a real socket: they are told, and nobody else notices."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from support.harness import LEGACY, MODERN, PATIENCE, config, connected, lean, until
from support.memory import build_aggregator
from support.remote_server import Request, remote_server
from support.serving import served

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}
DEEP = "[" * 500 + "]" * 500


def call(name: str, argument: str = "1") -> dict[str, Any]:
    """A modern call, for `httpx2`; the argument is JSON as it is sent."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": {"x": "?"}, "_meta": META},
    }
    headers = {**ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": name}
    content = json.dumps(message).replace('"?"', argument).encode()
    return {"content": content, "headers": headers, "timeout": PATIENCE}


async def session(http: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """The headers of a legacy client that has initialised."""
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    answer = await http.post(url, json=hello, headers=ACCEPT)
    headers = {**ACCEPT, "Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
    await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
    return headers


@asynccontextmanager
async def half_sent(url: str, request: dict[str, Any]) -> AsyncIterator[tuple[asyncio.StreamReader, Any]]:
    """A connection on which a request's head was sent, and half of its body."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    body = request["content"]
    lines = [f"POST {place.path} HTTP/1.1", f"Host: {place.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in request["headers"].items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body[: len(body) // 2])
    await writer.drain()
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize("odd", [r'"\ud800"', r'{"\udfff": 1}', DEEP], ids=["text", "name", "nesting"])
async def test_arguments_that_no_server_could_read_are_refused_and_disturb_no_other_call(odd: str, caplog: Any) -> None:
    waiting: list[Request] = []

    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            waiting.append(request)
        return request.is_bad

    async with remote_server(misbehave) as server:
        app = build_aggregator(config(r={"url": server.url}))
        async with served(app) as front, front.browser() as http:
            other = asyncio.create_task(http.post(front.url, **call("r:bad")))
            await until(lambda: waiting)
            answer = await http.post(front.url, **call("r:echo", odd))
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)
            await waiting[0].answer({"content": []})
            assert (await other).json()["result"]["content"] == []
            assert app.health()["r"].restarts == 0
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("argument", ["[" * 150 + "]" * 150, r'"\ud83d\ude00 \u0000"', "1e300", "1" * 300])
async def test_arguments_that_servers_can_read_reach_them(argument: str) -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front, front.browser() as http:
        answer = (await http.post(front.url, **call("a:echo", argument))).json()
        assert json.loads(answer["result"]["content"][0]["text"])["arguments"] == {"x": json.loads(argument)}


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("way", ["MCP", "the JSON API"])
async def test_numbers_of_a_server_that_json_does_not_have_become_null(number: str, way: str) -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front, front.browser() as http:
        content = '{"name": "a:raw", "arguments": {"content": [], "structuredContent": {"x": "?"}}}'
        if way == "MCP":
            request = call("a:raw")
            params = {**json.loads(content), "_meta": META}
            content = json.dumps({**json.loads(request["content"]), "params": params})
            answer = await http.post(front.url, **{**request, "content": content.replace('"?"', number)})
            result = answer.json()["result"]
        else:
            content = content.replace('"?"', number)
            result = (await http.post("/mcp/tools/call", content=content, headers=ACCEPT)).json()
        assert result["structuredContent"] == {"x": None}


@pytest.mark.parametrize("part", ["clientInfo", "clientCapabilities"])
async def test_a_request_that_is_not_forwarded_is_refused_for_the_same_reason(part: str, caplog: Any) -> None:
    app = build_aggregator(config(a=lean()))
    meta = {**META, f"io.modelcontextprotocol/{part}": {"name": "h", "version": "1", "x": "?"}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}})
    headers = {**ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": "server/discover"}
    async with served(app) as front, front.browser() as http:
        answer = await http.post(front.url, content=message.replace('"?"', DEEP), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_call_without_an_id_is_not_made(caplog: Any) -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front, front.browser() as http:
        headers = await session(http, front.url)
        params = {"name": "a:add_tool", "arguments": {"name": "more"}, "requestState": "s"}
        answer = await http.post(
            front.url, json={"jsonrpc": "2.0", "method": "tools/call", "params": params}, headers=headers
        )
        assert answer.status_code == 202
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a:more"}}
        assert "Tool not found: a:more" in (await http.post(front.url, json=call, headers=headers)).text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("is_modern", [False, True], ids=["legacy client", "modern client"])
async def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_error(is_modern: bool, caplog: Any) -> None:
    app = build_aggregator(config(a=lean()), max_concurrent_requests=1, max_waiting_requests=0)
    async with served(app) as front, front.browser() as http:
        logging.getLogger("uvicorn.error").addHandler(caplog.handler)  # its records do not reach the root
        request = call("a:echo")
        if not is_modern:
            request["headers"] = await session(http, front.url)
        for _ in range(3):
            async with half_sent(front.url, request):
                pass
        async with asyncio.timeout(PATIENCE):
            while (await http.post(front.url, **call("a:echo"))).status_code == 503:
                await asyncio.sleep(0.01)
        logging.getLogger("uvicorn.error").removeHandler(caplog.handler)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_client_that_is_slow_to_send_its_request_keeps_only_itself_waiting() -> None:
    app = build_aggregator(config(a=lean()), max_concurrent_requests=1)
    async with served(app) as front, front.browser() as http:
        request = call("a:echo")
        async with half_sent(front.url, request) as (reader, writer):
            assert (await http.post(front.url, **call("a:echo"))).status_code == 200
            writer.write(request["content"][len(request["content"]) // 2 :])
            assert b" 200 " in await asyncio.wait_for(reader.readline(), PATIENCE)


@pytest.mark.parametrize("what", ["clientInfo", "capabilities"])
async def test_a_client_that_says_very_much_of_itself_is_refused(what: str) -> None:
    long: dict[str, Any] = {"clientInfo": {"name": "x" * 70_000, "version": "1"}, "capabilities": {"experimental": {}}}
    long["capabilities"]["experimental"]["x"] = {"y": "x" * 70_000}
    hello = {**HELLO, what: long[what]}
    app = build_aggregator(config(a=lean()))
    async with app, connected(app, handshake=False) as client:
        error = await client.error("initialize", hello)
    assert (error["code"], "64 KiB" in error["message"]) == (-32602, True)
    async with served(build_aggregator(config(a=lean()))) as front, front.browser() as http:
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        answer = await http.post("/mcp", json=message, headers=ACCEPT)
    assert (answer.status_code, "at most 65536 bytes" in answer.text) == (413, True)


async def test_without_sessions_a_large_call_of_a_legacy_client_is_no_handshake() -> None:
    params = {"name": "a:echo", "arguments": {"text": "x" * 100_000}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with served(build_aggregator(config(a=lean())), stateless_http=True) as front, front.browser() as http:
        answer = await http.post("/mcp", json=message, headers={**ACCEPT, "MCP-Protocol-Version": LEGACY})
        assert (answer.status_code, "x" * 100_000 in answer.text) == (200, True)
        long = {**HELLO, "capabilities": {"experimental": {"x": {"y": "x" * 100_000}}}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": long}
        assert (await http.post("/mcp", json=message, headers=ACCEPT)).status_code == 413
