"""Message streams: JSON-RPC messages over lines, as the read and write streams that the SDK's sessions run on.

Backpressure is end to end: a reader that falls behind pauses its pipe, so the writer at the other end blocks; a writer
whose pipe is full suspends its sender.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter
from pydantic_core import from_json

from fastmcp_aggregator.protocol.methods import CANCELLED

_HIGH_WATER = 256
_LOW_WATER = 64
"""Lines in the queue: above the first number the pipe is paused, at the second it is resumed."""
_HIGH_WATER_BYTES = 1024 * 1024
_BATCH = 16
"""Lines that are parsed before the event loop runs other tasks."""
_MESSAGES = jsonrpc_message_adapter.validator


class FlowControl(Protocol):
    """Flow control of a pipe that is read: pause and resume."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class LineWriter(Protocol):
    """A pipe that is written. Both methods raise OSError when the connection is lost."""

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

    A line that is no JSON-RPC message is handed to `on_invalid`; a message of the `questionable` type that `admit`
    rejects is dropped. A line that `take` takes is not read here; it is asked while no line before is waiting, and
    `on_busy` is told of the others.
    `checked` is given each line of more than `unchecked_bytes` before it is parsed, and tells what is read in its
    place, or None; nothing else is read until then. `on_end` is told when all lines before the end were delivered.
    Other tasks run before the line is read that follows a message which it `pauses_after`: a notification costs as much
    as a batch, and is not awaited; what a child asks over a request is decided before that may be answered.
    """

    def __init__(
        self,
        flow: FlowControl,
        on_invalid: Callable[[bytes], None],
        admit: Callable[[Any], bool] = lambda _: True,
        *,
        take: Callable[[bytes], bool] = lambda _: False,
        checked: Callable[[bytes], Awaitable[bytes | None]] | None = None,
        unchecked_bytes: float = math.inf,
        questionable: type = object,
        pauses_after: Collection[type] = (JSONRPCNotification, JSONRPCRequest),
        on_busy: Callable[[list[bytes]], None] = lambda _: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._flow = flow
        self._on_invalid = on_invalid
        self._admit = admit
        self._take = take
        self._checked = checked
        self._unchecked_bytes = unchecked_bytes
        self._questionable = questionable
        self._pauses_after = pauses_after
        self._on_busy = on_busy
        self._on_end = on_end
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._batch = _BATCH
        self._ended = False
        self._paused = False
        self._is_idle = False
        """True if all that was fed has been delivered, and its receiver asks for more."""

    def feed(self, lines: list[bytes]) -> None:
        """Take whole lines, in order."""
        for index, line in enumerate(lines):
            is_offered = self._is_idle
            if is_offered and self._take(line):
                continue
            if passed_over := lines[index + is_offered :]:
                self._on_busy(passed_over)
            self.read(lines[index:])
            return

    def read(self, lines: list[bytes]) -> None:
        """`feed` without asking `take`."""
        self._lines.extend(lines)
        self._size += sum(map(len, lines))
        if not self._paused and (len(self._lines) > _HIGH_WATER or self._size > _HIGH_WATER_BYTES):
            self._paused = True
            self._flow.pause_reading()
        self._wake()

    def feed_end(self) -> None:
        """Handle end of file: what was fed before is still delivered."""
        self._ended = True
        self._wake()

    @property
    def has_more(self) -> bool:
        return bool(self._lines)

    async def receive(self) -> SessionMessage:
        """Return the next message. Raises anyio.EndOfStream: the pipe was closed."""
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        while True:
            while self._lines and self._batch:
                self._batch -= 1
                line = self._lines.popleft()
                self._size -= len(line)
                if self._paused:
                    self._resume_if_low()
                if len(line) <= self._unchecked_bytes or self._checked is None:
                    item = self._message(line)
                else:
                    short = await self._checked(line)
                    item = None if short is None else self._message(short)
                if item is not None:
                    if type(item.message) in self._pauses_after:
                        self._batch = 0
                    return item
            if self._lines or not self._batch:
                await asyncio.sleep(0)
            elif self._ended:
                self._on_end()
                raise StopAsyncIteration
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                self._is_idle = True
                try:
                    await self._waiter
                finally:
                    self._is_idle = False
            self._batch = _BATCH

    async def aclose(self) -> None:
        self._lines.clear()
        self._size = 0
        self.feed_end()

    def _resume_if_low(self) -> None:
        if len(self._lines) <= _LOW_WATER and self._size <= _HIGH_WATER_BYTES:
            self._paused = False
            self._flow.resume_reading()

    def _message(self, line: bytes) -> SessionMessage | None:
        try:
            message = read_message(line)
        except ValueError:
            if line.strip():
                self._on_invalid(line)
            return None
        if isinstance(message, self._questionable) and not self._admit(message):
            return None
        return SessionMessage(message)

    def _wake(self) -> None:
        self._is_idle = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class MessageWriter(_Stream):
    """Messages in, lines out."""

    def __init__(self, pipe: LineWriter) -> None:
        self._pipe = pipe
        self._closed = False
        self.waiting = 0
        """Messages for which there is no room yet."""

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message, as soon as the pipe has room.

        A cancellation is dropped when it has none: it would be stuck behind the request that it is to cancel.

        Raises:
            anyio.ClosedResourceError: this stream was closed.
            anyio.BrokenResourceError: the other end is gone.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        line = encode(item.message)
        try:
            if not self._pipe.has_room:
                if getattr(item.message, "method", None) == CANCELLED:
                    return
                self.waiting += 1
                try:
                    await self._pipe.drained()
                finally:
                    self.waiting -= 1
            self._pipe.write(line)
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._closed = True


def read_message(text: bytes) -> JSONRPCMessage:
    """The JSON-RPC message in a line or body.

    It is parsed once. To validate its text would parse it for each kind of message that it may be, which takes a tenth
    of a second where it has many small values.

    Raises:
        ValueError: it is none.
    """
    message: JSONRPCMessage = _MESSAGES.validate_python(from_json(text), by_name=False)
    return message


def encode(message: Any) -> bytes:
    """One JSON-RPC message as a line."""
    text: str = message.model_dump_json(by_alias=True, exclude_unset=True)
    return text.encode() + b"\n"
