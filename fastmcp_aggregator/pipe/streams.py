"""JSON-RPC messages over lines, as the read and write streams that the SDK's sessions run on.

Flow control is end to end: a reader that falls behind stops reading its pipe, so the writer at the other end
waits; a writer whose pipe is full suspends whoever sends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

_HIGH_WATER = 256
_LOW_WATER = 64


class Valve(Protocol):
    """What a reader needs from its pipe: to stop it and to let it go on."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Outlet(Protocol):
    """What a writer needs from its pipe. Both methods raise OSError when the other end is gone."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None: ...


class _Stream:
    """The part of the stream protocol that both directions share."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class MessageReader(_Stream):
    """Lines in, messages out. A line that is no JSON-RPC message is handed to `on_junk` and left out."""

    def __init__(self, valve: Valve, on_junk: Callable[[bytes], None]) -> None:
        self._valve = valve
        self._on_junk = on_junk
        self._lines: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._paused = False

    def feed(self, lines: list[bytes]) -> None:
        """Take whole lines, in order."""
        self._lines.extend(lines)
        if len(self._lines) > _HIGH_WATER and not self._paused:
            self._paused = True
            self._valve.pause_reading()
        self._wake()

    def feed_end(self) -> None:
        """The pipe is closed at the other end; what was fed before is still delivered."""
        self._ended = True
        self._wake()

    async def receive(self) -> SessionMessage:
        """The next message.

        Raises:
            anyio.EndOfStream: the pipe was closed.
        """
        while True:
            while self._lines:
                message = self._next_message()
                if message is not None:
                    return message
            if self._ended:
                raise anyio.EndOfStream
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self._lines.clear()
        self.feed_end()

    def _next_message(self) -> SessionMessage | None:
        line = self._lines.popleft()
        if self._paused and len(self._lines) <= _LOW_WATER:
            self._paused = False
            self._valve.resume_reading()
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValidationError:
            if line.strip():
                self._on_junk(line)
            return None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class MessageWriter(_Stream):
    """Messages in, lines out."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message; returns when the pipe has room for the next.

        Raises:
            anyio.ClosedResourceError: this stream was closed.
            anyio.BrokenResourceError: the other end is gone.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            self._outlet.write(encode(item.message))
            await self._outlet.drained()
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._closed = True


def encode(message: Any) -> bytes:
    """One JSON-RPC message as a line."""
    text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
    return text.encode() + b"\n"
