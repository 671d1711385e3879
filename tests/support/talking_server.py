"""Talking children over streamable HTTP, on loopback, in this process: what each says can be seen and caused directly.

What a child says while it works on a request goes to the request's own response stream, as the protocol has it; what it
says later goes to the session's stream.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from support.remote_server import RemoteServer, Request

sys.path.append(str(Path(__file__).parent / "programs"))

from talking_child import Play, Talk

_STREAM = {"content_type": "text/event-stream", "transfer_encoding": "chunked"}


class Stream:
    """One response stream. `is_over` once the response is written, or the client has left."""

    def __init__(self, request: Request) -> None:
        self.is_over = asyncio.Event()
        self._request = request

    def write(self, *messages: dict[str, Any]) -> None:
        """Messages, as events; the response ends the stream."""
        self._chunk("".join(f"data: {json.dumps(message)}\n\n" for message in messages))
        if any("method" not in message for message in messages):
            self.is_over.set()

    def end(self) -> None:
        self._chunk("")

    def _chunk(self, text: str) -> None:
        if not self._request.writer.is_closing():
            self._request.writer.write(f"{len(text):x}\r\n{text}\r\n".encode())


class TalkingServer(RemoteServer):
    """A legacy server has a child for each session, a modern one has one for all; `children` by session."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.is_modern = options.get("era") == "modern"
        self.children: dict[str, Talk] = {}
        self.standalone: dict[str, Stream] = {}
        self._early: dict[str, list[dict[str, Any]]] = {}
        """What children say before the stream of their session is open."""
        self._options = options
        self.streams: set[Stream] = set()
        """Response streams that are open now."""
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def child(self) -> Talk:
        """The last one."""
        return list(self.children.values())[-1]

    def waiting(self, gate: str) -> list[Play]:
        """The scripts that wait at a gate."""
        return [play for child in self.children.values() for play in child.gates.get(gate, [])]

    @property
    def entry(self) -> dict[str, Any]:
        """The `mcpServers` entry."""
        return {"url": self.url}

    async def stop(self) -> None:
        await super().stop()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        self._writers.add(writer)
        try:
            while request := await self._read(reader, writer):
                self.requests.append(request)
                if not (self.misbehave and await self.misbehave(request)):
                    await self._talk(request, reader)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            self._serving.discard(serving)
            writer.close()

    async def _talk(self, request: Request, reader: asyncio.StreamReader) -> None:
        session = "only" if self.is_modern else request.headers.get("mcp-session-id", "")
        if request.method == "initialize" and not self.is_modern:
            session = f"session-{len(self.children) + 1}"
        if not session:
            await request.refuse(200, -32601, "Method not found")
            return
        child = self.children.get(session) or self._begin(session)
        if request.http_method == "GET":
            await self._stream(request, reader, partial(self._open, session))
        elif request.http_method == "DELETE":
            await request.respond(200)
        elif "id" in request.message and "method" in request.message:
            await self._stream(request, reader, partial(self._answer, child, request), mcp_session_id=session)
        else:
            child.take(request.message)
            await request.respond(202)

    def _begin(self, session: str) -> Talk:
        def write(*messages: dict[str, Any]) -> None:
            if session in self.standalone:
                self.standalone[session].write(*messages)
            else:
                self._early.setdefault(session, []).extend(messages)

        child = self.children[session] = Talk(**self._options)
        child.write = write  # type: ignore[method-assign]
        return child

    def _open(self, session: str, stream: Stream) -> None:
        self.standalone[session] = stream
        if early := self._early.pop(session, []):
            stream.write(*early)

    @staticmethod
    def _answer(child: Talk, request: Request, stream: Stream) -> None:
        child.out = stream.write
        child.take(request.message)

    async def _stream(self, request: Request, reader: asyncio.StreamReader, use: Any, **headers: str) -> None:
        """A response stream, as long as it is used. A modern client cancels a request by leaving."""
        await request.start(200, **_STREAM, **headers)
        stream = Stream(request)
        self.streams.add(stream)
        use(stream)
        over, left = asyncio.ensure_future(stream.is_over.wait()), asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({over, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.streams.discard(stream)
            over.cancel()
            left.cancel()
            await asyncio.wait({over, left})
        if not stream.is_over.is_set():
            if self.is_modern and "id" in request.message:
                self.child.cancel(request.message["id"])
            raise ConnectionResetError
        stream.end()
        with suppress(ConnectionError):
            await request.writer.drain()


@asynccontextmanager
async def talking_server(**options: Any) -> AsyncIterator[TalkingServer]:
    """A server on a free port."""
    server = TalkingServer(**options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
