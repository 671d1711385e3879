"""An MCP server over HTTP on loopback that misbehaves on demand: raw bytes, no library that would set it right."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.harness import LEGACY, MODERN

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "bad")]


@dataclass
class Request:
    """One HTTP request; `message` is the JSON-RPC message in it."""

    http_method: str
    target: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    message: dict[str, Any] = field(default_factory=dict)

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def is_bad(self) -> bool:
        return bool(self.message.get("params", {}).get("name") == "bad")

    async def respond(self, status: int = 200, body: bytes | str = b"", **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        await self.start(status, **{"content_length": str(len(data)), **headers})
        self.writer.write(data)
        await self.writer.drain()

    async def start(self, status: int = 200, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X"] + [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        await self.writer.drain()

    async def answer(self, result: dict[str, Any], **headers: str) -> None:
        reply = {"jsonrpc": "2.0", "id": self.message["id"], "result": result}
        await self.respond(200, json.dumps(reply), content_type="application/json", **headers)

    async def refuse(self, status: int, code: int, text: str, *, with_id: bool = True) -> None:
        reply = {
            "jsonrpc": "2.0",
            "id": self.message["id"] if with_id else None,
            "error": {"code": code, "message": text},
        }
        await self.respond(status, json.dumps(reply), content_type="application/json")


Misbehaviour = Callable[[Request], Awaitable[bool | None]]


class RemoteServer:
    """`misbehave` sees each request first; it returns True when it has dealt with it."""

    def __init__(self) -> None:
        self.misbehave: Misbehaviour | None = None
        self.requests: list[Request] = []
        self.port = 0
        self.is_modern = False
        self.sessions = 0
        self.open_session = ""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def counts(self) -> Counter[str]:
        return Counter(request.method or request.http_method for request in self.requests)

    def forget_session(self) -> None:
        """All sessions up to now are unknown from here on."""
        self.open_session = "forgotten"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and cut all connections."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while request := await self._read(reader, writer):
                self.requests.append(request)
                if not (self.misbehave and await self.misbehave(request)):
                    await self._behave(request)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        http_method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        message = json.loads(body) if body else {}
        return Request(http_method, target, headers, body, writer, message)

    async def _behave(self, request: Request) -> None:
        if request.http_method != "POST":
            await request.respond(405)
        elif "id" not in request.message:
            await request.respond(202)
        elif request.method == "server/discover" and self.is_modern:
            await request.answer(
                {
                    "supportedVersions": [MODERN],
                    "capabilities": {"tools": {}},
                    "resultType": "complete",
                    "ttlMs": 0,
                    "cacheScope": "private",
                }
            )
        elif self.is_modern:
            await request.answer(
                {**self._result(request), "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            )
        elif request.method == "server/discover":
            await request.refuse(200, -32601, "Method not found")
        elif request.method == "initialize":
            self.sessions += 1
            self.open_session = f"session-{self.sessions}"
            result = {
                "protocolVersion": LEGACY,
                "capabilities": {"tools": {}, "prompts": {}},
                "serverInfo": {"name": "remote", "version": "1"},
            }
            await request.answer(result, mcp_session_id=self.open_session)
        elif request.headers.get("mcp-session-id") != self.open_session:
            await request.respond(404)
        else:
            await request.answer(self._result(request))

    def _result(self, request: Request) -> dict[str, Any]:
        if request.method == "tools/list":
            return {"tools": TOOLS}
        if request.method == "prompts/list":
            return {"prompts": [{"name": "ask"}]}
        if request.method == "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": self.open_session}}]}
        return {"content": [{"type": "text", "text": json.dumps(request.headers)}]} if request.method != "ping" else {}


@asynccontextmanager
async def remote_server(misbehave: Misbehaviour | None = None) -> AsyncIterator[RemoteServer]:
    """A server on a free port."""
    server = RemoteServer()
    server.misbehave = misbehave
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
