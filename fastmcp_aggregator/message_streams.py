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
from mcp_types import JSONRPCNotification, jsonrpc_message_adapter
from pydantic import ValidationError

_HIGH_WATER = 256
_LOW_WATER = 64
"""Lines that wait to be received: from the first number on the pipe is not read, down to the second."""
_HIGH_WATER_BYTES = 1024 * 1024
_TURN = 16
"""Lines that are looked at before others get their turn."""


class FlowControl(Protocol):
    """What a reader needs from its pipe: to stop it and to let it go on."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class LineWriter(Protocol):
    """What a writer needs from its pipe. Both methods raise OSError when the other end is gone."""

    @property
    def has_room(self) -> bool: ...

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
    """Lines in, messages out.

    A line that is no JSON-RPC message is handed to `on_junk` and left out; so is a message that `admit` refuses.
    """

    def __init__(
        self, valve: FlowControl, on_junk: Callable[[bytes], None], admit: Callable[[Any], bool] = lambda _: True
    ) -> None:
        self._valve = valve
        self._on_junk = on_junk
        self._admit = admit
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._turn = _TURN
        self._ended = False
        self._paused = False

    def feed(self, lines: list[bytes]) -> None:
        """Take whole lines, in order."""
        self._lines.extend(lines)
        self._size += sum(map(len, lines))
        if not self._paused and (len(self._lines) > _HIGH_WATER or self._size > _HIGH_WATER_BYTES):
            self._paused = True
            self._valve.pause_reading()
        self._wake()

    def feed_end(self) -> None:
        """The pipe is closed at the other end; what was fed before is still delivered."""
        self._ended = True
        self._wake()

    @property
    def has_more(self) -> bool:
        """Whether lines wait to be received."""
        return bool(self._lines)

    async def receive(self) -> SessionMessage:
        """The next message.

        Raises:
            anyio.EndOfStream: the pipe was closed.
        """
        while True:
            while self._lines and self._turn:
                self._turn -= 1
                item = self._next_message()
                if item is not None:
                    if isinstance(item.message, JSONRPCNotification):
                        self._turn = 0  # it costs as much as a turn, and nobody waits for it
                    return item
            if self._lines:
                await asyncio.sleep(0)
            elif self._ended:
                raise anyio.EndOfStream
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            self._turn = _TURN

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self._lines.clear()
        self._size = 0
        self.feed_end()

    def _next_message(self) -> SessionMessage | None:
        line = self._lines.popleft()
        self._size -= len(line)
        if self._paused and len(self._lines) <= _LOW_WATER and self._size <= _HIGH_WATER_BYTES:
            self._paused = False
            self._valve.resume_reading()
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            if line.strip():
                self._on_junk(line)
            return None
        return SessionMessage(message) if self._admit(message) else None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class MessageWriter(_Stream):
    """Messages in, lines out."""

    def __init__(self, outlet: LineWriter) -> None:
        self._outlet = outlet
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message, as soon as the pipe has room.

        A cancellation is dropped when there is none: it would be stuck behind the request that it is to cancel.

        Raises:
            anyio.ClosedResourceError: this stream was closed.
            anyio.BrokenResourceError: the other end is gone.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        line = encode(item.message)
        try:
            if not self._outlet.has_room:
                if getattr(item.message, "method", None) == "notifications/cancelled":
                    return
                await self._outlet.drained()
            self._outlet.write(line)
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._closed = True


def encode(message: Any) -> bytes:
    """One JSON-RPC message as a line."""
    text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
    return text.encode() + b"\n"
