"""A FIFO concurrency limiter (a semaphore), and a counter of requests in flight for a graceful shutdown.

What waits here may hold a slot elsewhere: an HTTP request has one of its server's. It releases that one meanwhile
(`released_while_waiting`), so that requests that wait for one child do not keep those for others from running.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar

released_while_waiting: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "released_while_waiting", default=nullcontext
)
"""Releases, for the length of a wait, the slot that the present request holds."""


class ConcurrencyLimiter:
    """At most `limit` slots are taken at once; waiters get theirs in order of arrival."""

    __slots__ = ("_limit", "_queue", "taken")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    @property
    def waiting(self) -> int:
        """The length of the queue."""
        return len(self._queue)

    def acquire_nowait(self) -> bool:
        """Take a slot if one is free; nobody waits then."""
        if self.taken >= self._limit:
            return False
        self.taken += 1
        return True

    async def acquire(self) -> None:
        """Take a slot when those who came before have had theirs. A waiter that is cancelled leaves the queue."""
        slot = asyncio.get_running_loop().create_future()
        self._queue.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._queue.remove(slot)
            if not slot.cancelled():
                self.release()  # granted at the same moment
            raise

    def release(self) -> None:
        """Give a slot back; the next waiter gets it."""
        self.taken -= 1
        while self._queue and self.taken < self._limit:
            slot = self._queue.popleft()
            if not slot.done():
                slot.set_result(None)
                self.taken += 1


DRAIN_TIMEOUT = 30.0
"""Seconds that requests in flight have to finish once the program is told to end."""


class InFlightCounter:
    """Counts requests in flight; can be closed to new ones and drained."""

    def __init__(self) -> None:
        self.is_closing = False
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def track(self) -> Iterator[None]:
        """Count one request, while it is answered."""
        self._count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._idle.set()

    async def close(self) -> None:
        """Reject new requests from now on, and wait for those in flight, for DRAIN_TIMEOUT seconds at most."""
        self.is_closing = True
        try:
            await asyncio.wait_for(self._idle.wait(), DRAIN_TIMEOUT)
        except TimeoutError:
            return

    def open(self) -> None:
        """Accept requests again, for another run of the app."""
        self.is_closing = False
