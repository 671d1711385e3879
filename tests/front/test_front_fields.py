"""Header values with white space around them, as the parsers that uvicorn may use leave them."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from support.harness import MODERN, PATIENCE, config, lean
from support.memory import build_aggregator
from support.serving import served

from fastmcp_aggregator.front.http.boundary import ErrorBoundary

META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


async def test_white_space_around_a_value_is_no_part_of_it() -> None:
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    headers = [(b"mcp-name", b" \ta b \t"), (b"empty", b" "), (b"plain", b"x")]
    await ErrorBoundary(inner)({"type": "http", "headers": headers}, None, None)  # type: ignore[arg-type]
    await ErrorBoundary(inner)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen[0]["headers"] == [(b"mcp-name", b"a b"), (b"empty", b""), (b"plain", b"x")]
    assert seen[1] == {"type": "lifespan"}


@pytest.mark.parametrize("parser", ["h11", "httptools"])
async def test_a_value_is_understood_whatever_parses_it(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(parser)
    monkeypatch.setitem(uvicorn.config.HTTP_PROTOCOLS, "auto", uvicorn.config.HTTP_PROTOCOLS[parser])
    async with served(build_aggregator(config(a=lean()))) as front:
        place = urlsplit(front.url)
        params = {"name": "a:echo", "arguments": {}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        lines = [
            f"POST {place.path} HTTP/1.1",
            f"Host: {place.netloc} ",
            "Connection: close",
            "Content-Type: application/json \t",
            "Accept:\tapplication/json, text/event-stream  ",
            f"Content-Length: {len(body)}",
            f"MCP-Protocol-Version: {MODERN} ",
            "Mcp-Method: tools/call\t",
            "Mcp-Name:  \t a:echo \t ",
        ]
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 "), answer
