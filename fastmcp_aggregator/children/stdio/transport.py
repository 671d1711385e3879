"""The stdio transport: MCP over the pipes of a child process, whatever the process writes into them.

- A line that is no message is ignored and counted; at most one a second is logged, and a child that writes more than a
  thousand a minute is taken for broken. If its head says which call it was to answer, that call fails.
- A message over the size limit becomes an error for the call that it answers, where its head tells which one that is.
- A notification beyond the rate limit is dropped, unparsed if its text tells what it is; the pipe is throttled. For a
  request beyond it the pipe is paused; one that would take long is dropped.
- A notification or request of more than 4 MiB is dropped: one of 100 MB would keep everybody waiting. After any other
  long message that is no answer on the fast path, the pipe is throttled by what parsing takes.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from mcp import ClientSession
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError
from typing_extensions import Unpack

from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.children.session.transport import DROPPING_COSTS, WatchedTransport
from fastmcp_aggregator.message_streams import FlowControl, MessageReader, MessageWriter, encode
from fastmcp_aggregator.pipe.bucket import TokenBucket

logger = logging.getLogger(__name__)

JUNK_PER_MINUTE = 1000
_TOO_LARGE = "response too large"
_NOT_READABLE = "response is not valid JSON-RPC"
_LONGEST_PAUSE = 0.25
"""Seconds: fifty requests ahead of what a child may ask, from clients that each wait for their answer."""
_UNASKED_LIMIT = 4 * 1024**2
"""Bytes of a message that is no answer."""
_LONG_COSTS = 4e-8
"""Seconds of throttling for each byte of a long message: twenty times what its parsing takes."""
_ANSWER_HEAD = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,\s*'
    rb'(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"(?:result|error)"\s*:'
)
"""The start of a response. An `"id"` further in may be anything, such as the number of somebody else's call."""
_RESULT_HEAD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"(?:result|error)"\s*:')
_NO_ANSWER_HEAD = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?(?:"id"\s*:\s*[^,]{1,200},\s*)?"(?:method|params)"\s*:'
)
_ID_AT_END = re.compile(rb',\s*"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')
"""The start and end of responses of servers built on the TypeScript SDK: the id comes last."""


class PacedFlowControl:
    """Pauses a pipe while there is one of two reasons to; each ends by itself."""

    def __init__(self, flow: FlowControl) -> None:
        self._flow = flow
        self._is_wanted = True
        self._is_throttled = False

    def pause_reading(self) -> None:
        self._is_wanted = False
        self._flow.pause_reading()

    def resume_reading(self) -> None:
        self._is_wanted = True
        self._resume_if_free()

    def throttle(self, seconds: float) -> None:
        """Throttle: pause for that long, so that other servers' messages are read meanwhile."""
        if not self._is_throttled:
            self._is_throttled = True
            self._flow.pause_reading()
            asyncio.get_running_loop().call_later(seconds, self._end_throttle)

    def _end_throttle(self) -> None:
        self._is_throttled = False
        self._resume_if_free()

    def _resume_if_free(self) -> None:
        if self._is_wanted and not self._is_throttled:
            self._flow.resume_reading()


class ProcessTransport(WatchedTransport):
    """MCP over the pipes of a process; its owner stops it."""

    def __init__(self, process: ChildProcess, *, has_fast_path: bool = True) -> None:
        super().__init__(process.server_key, process if has_fast_path else None)
        self._process = process
        self._junk_allowed = TokenBucket(burst=JUNK_PER_MINUTE, rate=JUNK_PER_MINUTE / 60)
        self._reports_allowed = TokenBucket(burst=1, rate=1)
        self._flow = PacedFlowControl(process)
        self.throttle = self._flow.throttle
        self.longest_pause = _LONGEST_PAUSE
        self.on_long = lambda size: self._flow.throttle(size * _LONG_COSTS)

    @asynccontextmanager
    async def connect_session(
        self,
        *,
        transport_options: TransportOptions | None = None,
        **session_kwargs: Unpack[SessionKwargs],
    ) -> AsyncIterator[ClientSession]:
        def on_invalid(line: bytes) -> None:
            self._count_junk(line)
            if answer := _error_for(_ANSWER_HEAD.match(line), _NOT_READABLE):
                reader.feed([answer])

        with self.reader(self._flow, on_invalid) as reader:
            self._attach(reader)
            writer = MessageWriter(self._process)
            self.unread = lambda: writer.waiting
            async with self.session_class(reader, writer, **session_kwargs) as session:
                yield session

    def _attach(self, reader: MessageReader) -> None:
        """Read what the process writes from now on."""

        def refuse(head: bytes, tail: bytes | None) -> None:
            limit = self._process.line_limit_mib
            answer = _too_large(head, tail, limit)
            if answer is None:
                self.why_lost = f"{_TOO_LARGE}: it wrote a line of more than {limit} to its stdout"
                reader.feed_end()
                self.lost.set()
            else:
                reader.feed([answer])

        self._process.attach(lambda lines: reader.feed(self._without_excess(lines)), partial(self.end, reader), refuse)

    def _without_excess(self, lines: list[bytes]) -> list[bytes]:
        """The lines that are to be parsed. A single one is left to `admits`: a flood comes in batches."""
        if max(map(len, lines), default=0) > _UNASKED_LIMIT:
            lines = [line for line in lines if not self._is_too_long(line)]
        if len(lines) < 2 or not self._notifications.is_empty(time.monotonic()):
            return lines
        kept = [line for line in lines if not _can_be_dropped(line)]
        if len(kept) < len(lines):
            dropped = len(lines) - len(kept)
            self._flow.throttle(dropped * DROPPING_COSTS)
            self._count_dropped(dropped)
        return kept

    def _is_too_long(self, line: bytes) -> bool:
        if len(line) <= _UNASKED_LIMIT or not _NO_ANSWER_HEAD.match(line):
            return False
        self._flow.throttle(len(line) * _LONG_COSTS)
        self.counters.dropped_notifications += 1
        if self._reports_allowed.take(time.monotonic()):
            logger.warning("server %r: a notification or request of more than 4 MiB was dropped", self.server_key)
        return True

    def _count_junk(self, line: bytes) -> None:
        self.counters.ignored_lines += 1
        now = time.monotonic()
        if self.lost.is_set():
            return
        if not self._junk_allowed.take(now):
            logger.warning(
                "server %r writes too much to stdout that is not an MCP message; it is ended, and started again",
                self.server_key,
            )
            self.why_lost = "it wrote too much to its stdout that is not an MCP message (logs belong on stderr)"
            self.lost.set()
        elif self._reports_allowed.take(now):
            logger.warning(
                "server %r wrote to stdout, ignored because it is not an MCP message; logs belong on stderr: %r",
                self.server_key,
                line[:120],
            )


def _can_be_dropped(line: bytes) -> bool:
    """True if a line is surely a notification, and not one that lists have changed. Every other message has an id."""
    is_sure = b'"method"' in line and b'"id"' not in line and b"\\u" not in line
    return is_sure and b"list_changed" not in line


def _too_large(head: bytes, tail: bytes | None, limit: str) -> bytes | None:
    """Return the error for the request whose answer has these edges; None when that cannot be told."""
    found = _ANSWER_HEAD.match(head)
    if found is None and tail is not None and _RESULT_HEAD.match(head):
        found = _ID_AT_END.search(tail)
    return _error_for(found, f"{_TOO_LARGE}: more than {limit}; raise `max_response_size_mb` to take it")


def _error_for(found: re.Match[bytes] | None, message: str) -> bytes | None:
    """Return the error for the request whose id was found."""
    if found is None:
        return None
    error = ErrorData(code=INTERNAL_ERROR, message=message)
    return encode(JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)).rstrip()
