"""Connections to remote servers that nobody has used for a while: not used when the server may be closing them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpcore2
import httpx2
import pytest

from fastmcp_aggregator.children.http.client import RemoteHttp
from fastmcp_aggregator.children.http.credentials import Credentials

ANSWER = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.mark.parametrize(("idle", "connections"), [(1.0, 1), (4.5, 2)])
async def test_a_connection_is_given_up_before_usual_servers_close_it(
    monkeypatch: pytest.MonkeyPatch, idle: float, connections: int
) -> None:
    """uvicorn and Node.js close theirs after five seconds, without a word, just when a call may be on its way."""
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now, time=lambda: now)
    monkeypatch.setattr(httpcore2._async.http11, "time", clock)
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            writer.write(ANSWER)

    def ignore(*_: Any) -> None:
        """What `serve` raises when the client is gone."""

    asyncio.get_running_loop().set_exception_handler(ignore)
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        remote = RemoteHttp(url, Credentials({}), transport="http", limit=1000)
        async with httpx2.AsyncClient(transport=remote) as client:
            for _ in range(2):
                assert (await client.post(url, json=NOTIFICATION)).status_code == 202
                now += idle
        assert opened == connections
        server.close()
