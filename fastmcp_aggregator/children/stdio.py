"""MCP over the pipes of a child process, whatever the process writes into them.

- A line that is no message is ignored and counted; at most one a second is reported, and a child that writes more than
  a thousand a minute is taken for broken.
- A message over the size limit becomes an error for the call that it answers, where its head tells which one that is.
- Notifications pass through a token bucket, so that a flood of them costs the others nothing.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from mcp import ClientSession
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCNotification
from typing_extensions import Unpack

from fastmcp_aggregator.children.process import ChildProcess
from fastmcp_aggregator.children.transports import LIST_CHANGED, WatchedTransport
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.pipe.streams import MessageReader, MessageWriter, encode

logger = logging.getLogger(__name__)

JUNK_PER_MINUTE = 1000
NOTIFICATION_BURST = 1000
NOTIFICATION_RATE = 200.0
_ANSWER_HEAD = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,\s*'
    rb'(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"(?:result|error)"\s*:'
)
"""How an answer begins. An `"id"` further in may be anything, such as the number of somebody else's call."""
_RESULT_HEAD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"(?:result|error)"\s*:')
_ID_AT_END = re.compile(rb',\s*"id"\s*:\s*(\d{1,15})\s*\}\s*\Z')
"""How the answers of servers built on the TypeScript SDK begin and end: the id comes last."""


class ProcessTransport(WatchedTransport):
    """MCP over the pipes of a process that somebody else owns."""

    def __init__(self, process: ChildProcess) -> None:
        super().__init__()
        self._process = process
        self._junk_allowed = TokenBucket(burst=JUNK_PER_MINUTE, rate=JUNK_PER_MINUTE / 60)
        self._reports_allowed = TokenBucket(burst=1, rate=1)
        self.notifications = TokenBucket(burst=NOTIFICATION_BURST, rate=NOTIFICATION_RATE)

    @asynccontextmanager
    async def connect_session(
        self,
        *,
        transport_options: TransportOptions | None = None,
        **session_kwargs: Unpack[SessionKwargs],
    ) -> AsyncIterator[ClientSession]:
        options = transport_options or TransportOptions()
        reader = MessageReader(self._process, self._count_junk, self._admit)

        def end() -> None:
            reader.feed_end()
            self.lost.set()

        def refuse(head: bytes, tail: bytes | None) -> None:
            answer = _too_large(head, tail)
            if answer is None:
                end()
            else:
                reader.feed([answer])

        self._process.attach(reader.feed, end, refuse)
        async with options.session_class(reader, MessageWriter(self._process), **session_kwargs) as session:
            yield session

    def _admit(self, message: object) -> bool:
        """Whether a message may pass: answers and requests always, notifications while there are not too many."""
        if not isinstance(message, JSONRPCNotification) or self.notifications.take(time.monotonic()):
            return True
        if message.method in LIST_CHANGED:
            self.on_list_changed()
        if self.notifications.refused == 1:
            logger.warning("server %r floods us with notifications; some are dropped", self._process.server_key)
        return False

    def _count_junk(self, line: bytes) -> None:
        now = time.monotonic()
        if not self._junk_allowed.take(now):
            logger.warning("server %r writes too much that is no MCP message", self._process.server_key)
            self.lost.set()
        elif self._reports_allowed.take(now):
            logger.warning(
                "server %r writes to stdout what is no MCP message; ignored: %.120r", self._process.server_key, line
            )


def _too_large(head: bytes, tail: bytes | None) -> bytes | None:
    """The error to give to whoever waits for the answer with these edges; None when that cannot be told."""
    found = _ANSWER_HEAD.match(head)
    if found is None and tail is not None and _RESULT_HEAD.match(head):
        found = _ID_AT_END.search(tail)
    if found is None:
        return None
    error = ErrorData(code=INTERNAL_ERROR, message="response too large")
    return encode(JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)).rstrip()
