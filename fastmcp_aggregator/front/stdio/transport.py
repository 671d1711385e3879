"""The stdio transport to the client: MCP over this process's stdin and stdout, with backpressure.

While it serves, the two descriptors are ours alone: descriptor 0 reads from the null device and 1 writes to stderr,
so that a stray `print` cannot break the protocol. Pipes, sockets and terminals are read and written by the event loop
itself; for anything else (a file, Windows) the SDK's transport does it with threads.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp.server.stdio import stdio_server
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCNotification, RequestId

from fastmcp_aggregator.concurrency.limiter import InFlightCounter
from fastmcp_aggregator.early.answers import digest_of
from fastmcp_aggregator.early.front import Handover, is_pipe, take_over
from fastmcp_aggregator.front.stdio.conversation import Conversation, ConversationWriter
from fastmcp_aggregator.message_streams import MessageReader, encode
from fastmcp_aggregator.pipe.joined_writes import JoinedWrites
from fastmcp_aggregator.pipe.lines import LINE_LIMIT, LineSplitter

logger = logging.getLogger(__name__)

_FLUSH_TIMEOUT = 2.0
_MOST_AHEAD = 1000
"""Lines that a client may send while it does not read, before it is not read either; each 16 KiB count as one."""


class Shortcut(Protocol):
    """A handler that may serve a line itself."""

    def attach(self, pipe: ClientPipe) -> None:
        """Serve the client on this pipe."""

    def take(self, line: bytes) -> bool:
        """True if it serves the line."""
        ...

    def pass_over(self, lines: list[bytes]) -> None:
        """Others are read at the moment, so it is not asked for these."""

    def close(self) -> None:
        """The pipe is closed."""


@dataclass(frozen=True, slots=True)
class StdioStreams:
    """The client's two streams, and what is open between us; None where the SDK reads and writes."""

    read: Any
    write: Any
    conversation: Conversation | None = None
    listed: Mapping[str, str] = field(default_factory=dict)
    """Digests of the lists that the client has got already, by method."""

    async def finish(self, in_flight: InFlightCounter, timeout: float) -> None:
        """Let what is open be answered: all of it, if the client has left, or what is in flight if we are to end.

        What is not answered within `timeout` seconds is cut off. Nothing is answered to a client that does not read.
        """
        ends = [] if self.conversation is None else [asyncio.ensure_future(self.conversation.over(timeout))]
        if self.conversation is None or not self.conversation.client_left:
            ends.append(asyncio.ensure_future(in_flight.close(timeout)))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if self.conversation is not None:
            self.conversation.is_cut_off = True


@asynccontextmanager
async def stdio_streams(on_end: Callable[[], None], shortcut: Shortcut | None = None) -> AsyncIterator[StdioStreams]:
    """The streams of this process's client. The shortcut is asked first for each line that comes.

    When the client closes a pipe, `on_end` is called and the read stream stays open, so that what it has asked before
    can still be answered; where the SDK reads, the stream just ends.
    """
    if sys.platform != "win32" and all(is_pipe(descriptor) or os.isatty(descriptor) for descriptor in (0, 1)):
        async with _pipe_streams(on_end, shortcut) as streams:
            yield streams
    else:
        async with stdio_server() as (read, write):
            yield StdioStreams(read, write)


@asynccontextmanager
async def _pipe_streams(on_end: Callable[[], None], shortcut: Shortcut | None) -> AsyncIterator[StdioStreams]:
    loop = asyncio.get_running_loop()
    early = take_over()
    stdin, stdout = _own(0, os.O_RDONLY), _own(1, os.O_WRONLY)
    _redirect_stdio()
    output = OutputPipe()
    client_pipe = ClientPipe(output, on_end, shortcut, early)
    await loop.connect_write_pipe(lambda: output, os.fdopen(stdout, "wb", buffering=0))
    with suppress(OSError):
        output.write(early.unwritten)
    await loop.connect_read_pipe(lambda: client_pipe, os.fdopen(stdin, "rb", buffering=0))
    async with client_pipe.streams({method: digest_of(result) for method, result in early.answered.items()}) as streams:
        yield streams


def _own(descriptor: int, flags: int) -> int:
    """A descriptor that may be made non-blocking. A terminal is opened anew: stderr and the shell share the other."""
    if os.isatty(descriptor):
        return os.open(os.ttyname(descriptor), flags | os.O_NOCTTY)
    return os.dup(descriptor)


def _redirect_stdio() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)


class OutputPipe(asyncio.Protocol):
    """Our end of what the client reads: stdout, or a socket."""

    def __init__(self) -> None:
        self.on_gone: Callable[[], None] = lambda: None
        self.on_room: Callable[[], None] = lambda: None
        self.has_room = True
        self._room = asyncio.Event()
        self._room.set()
        self._gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        self._let_on()
        self.on_gone()

    def pause_writing(self) -> None:
        self.has_room = False
        self._room.clear()

    def resume_writing(self) -> None:
        self._let_on()
        self.on_room()

    def _let_on(self) -> None:
        self.has_room = True
        self._room.set()

    def write(self, data: bytes) -> None:
        if self._gone.is_set():
            raise BrokenPipeError
        self._transport.write(data)

    async def drained(self) -> None:
        await self._room.wait()
        if self._gone.is_set():
            raise BrokenPipeError

    async def close(self) -> None:
        """Write what is buffered, within a bound, and close."""
        self._transport.close()
        try:
            await asyncio.wait_for(self._gone.wait(), _FLUSH_TIMEOUT)
        except TimeoutError:
            self._transport.abort()


class ClientPipe(asyncio.Protocol):
    """Our end of what the client writes: stdin, or a socket; and, for a shortcut, of what it reads."""

    def __init__(
        self,
        output: OutputPipe,
        on_end: Callable[[], None],
        shortcut: Shortcut | None,
        early: Handover,
    ) -> None:
        """`early` is what has been read already; the client's first request comes once more, if it was answered."""
        self._output = output
        output.on_gone, output.on_room = self.abandon, self.go_on
        self._answers = JoinedWrites(output.write)
        self._on_end = on_end
        self._shortcut = shortcut
        self._early = early
        self._is_full = self._is_stuck = False
        self._ahead = 0
        self._splitter = LineSplitter(LINE_LIMIT)
        self._held: list[bytes] | None = None
        """Lines that wait for the first request to be served again."""
        self.conversation = Conversation(lambda: self.reader.has_more or bool(self._held), self._answer, self._let_in)
        hooks: dict[str, Any] = {} if shortcut is None else {"take": shortcut.take, "on_busy": shortcut.pass_over}
        self.reader = MessageReader(
            self, self._refuse, self.conversation.read, pauses_after=(JSONRPCNotification,), **hooks
        )
        if shortcut is not None:
            shortcut.attach(self)

    @asynccontextmanager
    async def streams(self, listed: Mapping[str, str]) -> AsyncIterator[StdioStreams]:
        """The streams of a client that is connected at both ends, which are closed at the end."""
        try:
            writer = ConversationWriter(self._output, self.conversation)
            yield StdioStreams(self.reader, writer, self.conversation, listed)
        finally:
            if self._shortcut is not None:
                self._shortcut.close()
            self._answers.flush()
            self._transport.close()
            await self._output.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.ReadTransport = transport  # type: ignore[assignment]
        early = self._early
        lines = [*early.lines, *self._splitter.feed(early.rest)]
        if early.first is None:
            self._feed(lines)
        else:
            self._held = lines
            self.conversation.replay(json.loads(early.first)["id"])
            self.reader.feed([early.first])

    def data_received(self, data: bytes) -> None:
        lines = self._splitter.feed(data)
        self._feed(lines)
        if self._output.has_room:
            self._ahead = 0
            return
        self._ahead += len(lines) + len(data) // 16384
        if self._ahead > _MOST_AHEAD:
            self._is_stuck = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._feed(self._splitter.end())

    def _feed(self, lines: list[bytes]) -> None:
        if self._held is not None:
            self._held += lines
        elif lines:
            self.reader.feed(lines)

    def _let_in(self) -> None:
        lines, self._held = self._held, None
        self._feed(lines or [])

    def connection_lost(self, exc: Exception | None) -> None:
        self.conversation.leave()
        self._on_end()

    # For a shortcut.

    @property
    def has_room(self) -> bool:
        """True if the client's end takes more at once."""
        return self._output.has_room

    def answer(self, line: bytes) -> None:
        """Write the answer to a request on a line that was taken."""
        write = self._answers.add if self.conversation.awaited > 1 else self._output.write
        with suppress(OSError):
            write(line)

    def read_again(self, request_id: RequestId, line: bytes) -> None:
        """Have a line that was taken read like all others, after those that came since."""
        self.conversation.read_again(request_id, line)
        self.reader.read([line])

    def abandon(self) -> None:
        """The client does not read our answers, so what it asks is not answered."""
        self.conversation.abandon()
        self._on_end()

    def pause_reading(self) -> None:
        self._is_full = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_full = False
        if not self._is_stuck:
            self._transport.resume_reading()

    def go_on(self) -> None:
        self._is_stuck, self._ahead = False, 0
        if not self._is_full:
            self._transport.resume_reading()

    def _refuse(self, line: bytes) -> None:
        """JSON-RPC 2.0 §5: what cannot be parsed is answered under the id null."""
        logger.debug("the client sent something that is not a JSON-RPC message: %d bytes", len(line))
        error = ErrorData(code=PARSE_ERROR, message="Parse error")
        self._answer(JSONRPCError(jsonrpc="2.0", id=None, error=error))

    def _answer(self, error: JSONRPCError) -> None:
        try:
            self._output.write(encode(error))
        except OSError:
            return
        finally:
            self.conversation.check()
