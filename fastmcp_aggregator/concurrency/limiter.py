"""Limiters of which no holder can starve the others, and a counter of requests in flight for a graceful shutdown.

Theory. Any holder may use what is free. A reserve of a quarter as much again is for holders that have less than that
quarter: so a newcomer finds room, though another holder has taken the whole capacity and keeps it. This needs no
history, preempts nobody, and costs the same for any number of holders.

What waits here may hold a slot elsewhere: an HTTP request has one of its server's. It releases that one meanwhile
(`released_while_waiting`), so that requests that wait for one child do not keep those for others from running.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Self

released_while_waiting: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "released_while_waiting", default=nullcontext
)
"""Releases, for the length of a wait, the slot that the present request holds."""

Holder = Hashable
"""Who holds a part of the capacity: a principal, or the address of a client that has none."""


def share_of(capacity: int) -> int:
    """Return the size of the reserve, which is also the most that a holder that uses it may have."""
    return max(1, capacity // 4)


class FairShare:
    """A capacity of anything that is counted, such as queue places or bytes."""

    __slots__ = ("_capacity", "_held", "_share", "taken")

    def __init__(self, capacity: int, *, has_reserve: bool = True) -> None:
        self._capacity = capacity
        self._share = share_of(capacity) if has_reserve else 0
        self._held: dict[Holder, int] = {}
        self.taken = 0
        """By all holders together."""

    @property
    def is_full(self) -> bool:
        """Whether capacity and reserve are used up."""
        return self.taken >= self._capacity + self._share

    def has_room(self, holder: Holder, amount: int = 1) -> bool:
        """Whether `try_acquire` would take this amount."""
        is_within_share = self._held.get(holder, 0) + amount <= self._share
        return self.taken + amount <= self._capacity + (self._share if is_within_share else 0)

    def try_acquire(self, holder: Holder, amount: int = 1) -> bool:
        """Take this amount if there is room; return whether there was."""
        if not self.has_room(holder, amount):
            return False
        self.force_acquire(holder, amount)
        return True

    def force_acquire(self, holder: Holder, amount: int = 1) -> None:
        """Take this amount, even beyond the capacity."""
        self.taken += amount
        self._held[holder] = self._held.get(holder, 0) + amount

    def release(self, holder: Holder, amount: int = 1) -> None:
        """Return this amount of what the holder has taken."""
        self.taken -= amount
        self._held[holder] -= amount
        if self._held[holder] == 0:
            del self._held[holder]


class FairLimiter:
    """A semaphore of `limit` slots and a reserve. Waiting holders are served round-robin, and each of them FIFO."""

    __slots__ = ("_slots", "_waiting", "waiting")

    def __init__(self, limit: int, *, has_reserve: bool = True) -> None:
        """Without a reserve, `limit` is never exceeded, but a holder that keeps all slots keeps the others waiting."""
        self._slots = FairShare(limit, has_reserve=has_reserve)
        self._waiting: dict[Holder, deque[asyncio.Future[None]]] = {}
        """The queues, by holder; the first holder is next."""
        self.waiting = 0
        """The length of all queues together."""

    @property
    def taken(self) -> int:
        """Slots taken."""
        return self._slots.taken

    def slot(self, holder: Holder) -> Slot:
        """A slot, still to be entered and acquired."""
        return Slot(self, holder)

    def has_free(self, holder: Holder) -> bool:
        """Whether `acquire_nowait` would take a slot."""
        return self._slots.has_room(holder)

    def acquire_nowait(self, holder: Holder) -> bool:
        """Take a slot if one is free for this holder; nothing of it waits then."""
        return self._slots.try_acquire(holder)

    async def acquire(self, holder: Holder) -> None:
        """Take a slot when it is this holder's turn. A waiter that is cancelled leaves the queue."""
        slot = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(slot)
        self.waiting += 1
        try:
            await slot
        except asyncio.CancelledError:
            if slot.cancelled():
                self._leave(holder, slot)
            else:
                self.release(holder)  # it came at the same moment
            raise

    def release(self, holder: Holder) -> None:
        """Give a slot back; the next waiter gets it."""
        self._slots.release(holder)
        while not self._slots.is_full and self._hand_on():
            pass

    def reacquire(self, holder: Holder) -> None:
        """Take back a slot that was released for a while, even if none is free: the limit is exceeded for a moment."""
        self._slots.force_acquire(holder)

    def _hand_on(self) -> bool:
        """Give a slot to the first holder that may have one; those passed over hold a reserve each, so they are few."""
        for holder, queue in self._waiting.items():
            if not self._slots.try_acquire(holder):
                continue
            slot = queue.popleft()
            self.waiting -= 1
            del self._waiting[holder]
            if queue:
                self._waiting[holder] = queue  # behind the others
            if slot.cancelled():
                self._slots.release(holder)
            else:
                slot.set_result(None)
            return True
        return False

    def _leave(self, holder: Holder, slot: asyncio.Future[None]) -> None:
        queue = self._waiting.get(holder)
        if queue is not None and slot in queue:
            queue.remove(slot)
            self.waiting -= 1
            if not queue:
                del self._waiting[holder]


class Slot:
    """One slot of a holder. It is released while what is done meanwhile waits for something else."""

    __slots__ = ("_before", "_holder", "_is_acquired", "_is_over", "_limiter")

    def __init__(self, limiter: FairLimiter, holder: Holder) -> None:
        self._limiter = limiter
        self._holder = holder
        self._is_acquired = False
        self._is_over = False

    async def acquire_within(self, seconds: float) -> bool:
        """Wait for it; whether it has come in time."""
        if not self._limiter.acquire_nowait(self._holder):
            try:
                async with asyncio.timeout(seconds):
                    await self._limiter.acquire(self._holder)
            except TimeoutError:
                return False
        self._is_acquired = True
        return True

    @contextmanager
    def released(self) -> Iterator[None]:
        """While its holder waits for something else. It may do several things at once, some of which go on."""
        self._give_back()
        try:
            yield
        finally:
            if not self._is_acquired and not self._is_over:
                self._limiter.reacquire(self._holder)
                self._is_acquired = True

    def __enter__(self) -> Self:
        self._before = released_while_waiting.set(self.released)
        return self

    def __exit__(self, *exc_info: object) -> None:
        released_while_waiting.reset(self._before)
        self._is_over = True
        self._give_back()

    def _give_back(self) -> None:
        if self._is_acquired:
            self._is_acquired = False
            self._limiter.release(self._holder)


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

    def begin(self) -> None:
        """Count one more, until `end`."""
        self._count += 1
        self._idle.clear()

    def end(self) -> None:
        """One is answered."""
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
