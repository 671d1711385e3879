"""The base class of the client transports: connection loss, and a rate limit for notifications and requests.

Transports tell when the connection is lost (`lost`), which the SDK's session does not: it only fails the next request.
Notifications pass a token bucket, so that a flood of them costs other children nothing. So do requests: a child that
asks too fast is read more slowly where there is a pipe to pause, and what is too much even so is dropped. None passes
while many answers wait for the child to read them: each is a task that waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from fastmcp.client.transports import ClientTransport
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import JSONRPCNotification, JSONRPCRequest

from fastmcp_aggregator.catalogue.snapshot import CHANGED_KINDS, Kind
from fastmcp_aggregator.children.session.direct import PipeRequests
from fastmcp_aggregator.children.session.parts import LONG, in_place_of, looking_for_parts
from fastmcp_aggregator.children.session.transport_failure import HttpFailure
from fastmcp_aggregator.concurrency.waits import in_turns
from fastmcp_aggregator.message_streams import FlowControl, LineWriter, MessageReader
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.parts import ANSWER_PARTS_LIMIT

logger = logging.getLogger(__name__)
_NOTIFICATION_BURST = 1000
_NOTIFICATION_RATE = 200.0
_MOST_UNREAD = 1000
"""Messages that wait for a child that does not read; beyond them its requests are dropped."""
DROPPING_COSTS = 0.00015
"""Seconds of throttling for each message dropped; one read brings some hundreds."""
_DELIVERY_BOUND = 1.0
"""Seconds in which what a child has written before its end is to be delivered."""
OnListChanged = Callable[[frozenset[Kind]], None]


class WatchedTransport(ClientTransport):
    """A client transport that sets `lost` when its connection has ended, for whatever reason."""

    def __init__(self, server_key: str, pipe: LineWriter | None = None) -> None:
        """`pipe` is what the session writes to, if requests can be sent there beside it."""
        self.server_key = server_key
        self.direct = None if pipe is None else PipeRequests(pipe)
        """Sends requests beside the session."""
        self.lost = asyncio.Event()
        self.why_lost: str | None = None
        """Why we have ended it, where it was us."""
        self.on_list_changed: OnListChanged = lambda kinds: None
        """Told of list changes that the session will not hear of."""
        self.counters = Counters()
        """Counts what is left out."""
        self.session_class: Callable[..., ClientSession] = ClientSession
        """The class of the session over a reader and a writer."""
        self._notifications = TokenBucket(burst=_NOTIFICATION_BURST, rate=_NOTIFICATION_RATE)
        self._requests = TokenBucket(burst=_NOTIFICATION_BURST, rate=_NOTIFICATION_RATE)
        self.throttle: Callable[[float], None] = lambda seconds: None
        """Pauses the pipe for so long, if there is one."""
        self.longest_pause = 0.0
        """Seconds for which it is paused for a request that is too much, rather than that the request is dropped."""
        self.on_long: Callable[[int], None] = lambda size: None
        """Told of the bytes of each long message that is not the answer to a direct request."""
        self.unread: Callable[[], int] = lambda: 0
        """The number of messages that wait until the child has read others."""
        self._floods_reported = TokenBucket(burst=1, rate=1 / 60)

    @property
    def failure(self) -> HttpFailure | None:
        """The failure on the way to the child, where there is a way."""
        return None

    def translated(self, error: MCPError) -> MCPError:
        """The error of a request, for what it is: the child's own, or one of the way to it."""
        return error

    @contextmanager
    def reader(self, flow: FlowControl, on_invalid: Callable[[bytes], None]) -> Iterator[MessageReader]:
        """The stream that the session reads, without the answers to direct requests."""
        direct = self.direct

        def end() -> None:
            if direct is not None:
                direct.close()
            self.lost.set()

        checked = partial(self._checked, on_invalid)
        reading = partial(
            MessageReader,
            flow,
            on_invalid,
            self.admits,
            checked=checked,
            unchecked_bytes=ANSWER_PARTS_LIMIT,
            on_end=end,
        )
        if direct is None:
            yield reading(questionable=JSONRPCNotification)
            return
        try:
            yield reading(take=direct.take)
        finally:
            direct.close()

    def end(self, reader: MessageReader) -> None:
        """The child has ended: the connection is lost once all that it wrote is delivered, a long answer in turns."""
        reader.feed_end()
        asyncio.get_running_loop().call_later(_DELIVERY_BOUND, self.lost.set)

    def admits(self, message: object) -> bool:
        """True if the session gets a message: its answers always, notifications and requests unless there are too many.

        Answers to direct requests are not the session's.
        """
        if isinstance(message, JSONRPCRequest):
            return self._admits_request()
        if not isinstance(message, JSONRPCNotification):
            return self.direct is None or not self.direct.take_message(message)
        if self._notifications.take(time.monotonic()):
            return True
        if kinds := CHANGED_KINDS.get(message.method):
            self.on_list_changed(kinds)
        self._count_dropped(1)
        return False

    def _admits_request(self) -> bool:
        wait = self._requests.wait(time.monotonic())
        if self.unread() >= _MOST_UNREAD or wait > self.longest_pause:
            self._count_dropped(1)
            self.throttle(DROPPING_COSTS)
            return False
        self._requests.spend(1)
        if wait:
            self.throttle(wait)
        return True

    async def _checked(self, on_invalid: Callable[[bytes], None], line: bytes) -> bytes | None:
        """The text that is parsed in place of a line: with too many parts none is, unless it is passed on as it is."""
        is_long = len(line) > LONG
        if is_long and self.direct is not None and await self.direct.take_long(line):
            return None
        self.on_long(len(line))
        if not await in_turns(looking_for_parts(line)):
            if is_long:
                await asyncio.sleep(0)
            return line
        if self.direct is not None and self.direct.take(line):
            return None
        try:
            short = in_place_of(line)
        except raw_json.Malformed:
            on_invalid(line)
            return None
        if short is None:
            self._count_dropped(1)
        return short

    def _count_dropped(self, count: int) -> None:
        self.counters.dropped_notifications += count
        if self._floods_reported.take(time.monotonic()):
            logger.warning(
                "server %r sends too many notifications or requests, so some are dropped (no change of a list)",
                self.server_key,
            )


@dataclass(slots=True)
class Counters:
    """The counts of one child."""

    ignored_lines: int = 0
    """Lines of its stdout that are no MCP messages."""
    dropped_notifications: int = 0
    """Notifications that were too many."""
