"""Messages to many clients that none of them has asked for now: updated resources and changed lists.

Theory. One message of a server may be for hundreds of clients, and costs as much as hundreds of messages. So it goes to
a few of them in one turn of the loop, and in the long run to one by one, so many a second: the loop is for requests,
and one that comes meanwhile is to find little work before it. Principals take turns, so that only one with many clients
is told later. A message that waits for a principal is not put again; it is told to its clients after the last time that
it was put, and to those that there are then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator

from fastmcp_aggregator.pipe.bucket import TokenBucket

logger = logging.getLogger(__name__)
_AT_ONCE, _INTERVAL = 20, 0.002
"""Clients that are sent something at once, and seconds between two in the long run: to send is work for the loop that
all share, some 0.2 ms each.
"""
_IN_A_TURN = 4
"""Clients that are sent something in one turn of the loop."""

Send = Callable[[], Awaitable[None]]
"""Sends a message to one client. It does not wait for the client."""


class _Queue:
    """Messages queued for one principal's clients."""

    def __init__(self) -> None:
        self.waiting: dict[Hashable, Callable[[], Iterator[Send]]] = {}
        self._begun: Iterator[Send] = iter(())

    def next(self) -> Send | None:
        while (send := next(self._begun, None)) is None and self.waiting:
            self._begun = self.waiting.pop(next(iter(self.waiting)))()
        return send


class Fanout:
    """Messages that wait to be sent to many clients. One task sends them."""

    def __init__(self, *, most_waiting: int = 1000) -> None:
        """`most_waiting` messages may wait for one principal; see `has_room`."""
        self._most_waiting = most_waiting
        self._queues: dict[Hashable, _Queue] = {}
        """Queues by principal; the first is next."""
        self._sending: asyncio.Task[None] | None = None
        self._pace = TokenBucket(burst=_AT_ONCE, rate=1 / _INTERVAL)

    def has_room(self, principal: Hashable) -> bool:
        """True if one more message should be put; if not, one that says more, and of which there are few."""
        queue = self._queues.get(principal)
        return queue is None or len(queue.waiting) < self._most_waiting

    def put(self, principal: Hashable, message: Hashable, sends: Callable[[], Iterator[Send]]) -> None:
        """Send a message to a principal's clients, which `sends` finds when their turn comes."""
        self._queues.setdefault(principal, _Queue()).waiting.setdefault(message, sends)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="fan-out")

    async def close(self) -> None:
        """Drop what waits."""
        self._queues.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_all(self) -> None:
        now = asyncio.get_running_loop().time
        in_turn = 0
        while self._queues:
            if self._pace.is_empty(now()):
                await asyncio.sleep(1.5 * _INTERVAL)  # a half more, for sums are rounded
                in_turn = 0
                continue
            if in_turn == _IN_A_TURN:
                await asyncio.sleep(0)
                in_turn = 0
            in_turn += 1
            try:
                await self._send_next()
            except Exception:
                logger.exception("a message was not sent to a client; the others get theirs")

    async def _send_next(self) -> None:
        send = self._next()
        if send is not None:
            self._pace.take(asyncio.get_running_loop().time())
            await send()

    def _next(self) -> Send | None:
        principal = next(iter(self._queues))
        queue = self._queues.pop(principal)
        send = queue.next()
        if send is not None:
            self._queues[principal] = queue  # behind the others
        return send
