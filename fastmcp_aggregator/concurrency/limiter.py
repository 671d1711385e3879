"""Limiters of which no holder can starve the others, and a counter of requests in flight for a graceful shutdown.

Theory. A holder may have four times what it would leave free ("dynamic thresholds", Choudhury and Hahne, 1998): alone
four fifths of all there is, one of two four ninths, and a newcomer always finds a part of the rest. A holder of
nothing may have the last. So a holder of little is never refused for one of much, which gives way as others come: what
it releases is theirs. This needs no history, preempts nobody, and costs the same for any number of holders.

What waits here may hold a slot elsewhere: an HTTP request has one of its server's. It releases that one meanwhile
(`released_while_waiting`), so that requests that wait for one child do not keep those for others from running.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from operator import itemgetter
from typing import Self

released_while_waiting: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "released_while_waiting", default=nullcontext
)
"""Releases, for the length of a wait, the slot that the present request holds."""

Holder = Hashable
"""The holder of a part of the capacity: a principal, or the address of a client that has none. None: the only client,
or the program itself, which shares with nobody.
"""

_TIMES_FREE = 4
"""A holder may have this multiple of what it leaves free."""


def share_of(capacity: int) -> int:
    """Return how much more than `capacity` there must be, so that a holder can have that much alone."""
    return -(-capacity // _TIMES_FREE)


@dataclass(frozen=True, slots=True)
class Usage:
    """The taken part of a capacity: by how many holders, most of it by which; and how often there was no room."""

    total: int
    taken: int
    holders: int
    largest: tuple[Holder, int]
    refused: int


class FairShare:
    """Anything that is counted, such as queue slots or bytes. A holder that is alone may have `capacity` of it."""

    __slots__ = ("_has_reserve", "_held", "refused", "taken", "total")

    def __init__(self, capacity: int, *, has_reserve: bool = True) -> None:
        """There is a reserve beyond the capacity for others; without it, the capacity is all there is, and shared."""
        self._has_reserve = has_reserve
        self.total = capacity + share_of(capacity) if has_reserve else capacity
        """The bound of all holders together."""
        self._held: dict[Holder, int] = {}
        self.taken = 0
        """Slots taken by all holders together."""
        self.refused = 0
        """Refusals for lack of room."""

    @property
    def is_full(self) -> bool:
        return self.taken >= self.total

    def usage(self) -> Usage:
        """The present usage; O(holders)."""
        return Usage(self.total, self.taken, self.holders, self.largest(), self.refused)

    @property
    def holders(self) -> int:
        """The number of holders."""
        return len(self._held)

    def largest(self) -> tuple[Holder, int]:
        """The holder with the largest share, and its amount; O(holders)."""
        return max(self._held.items(), key=itemgetter(1), default=(None, 0))

    def held(self, holder: Holder) -> int:
        """The amount that a holder has."""
        return self._held.get(holder, 0)

    def has_room(self, holder: Holder, amount: int = 1) -> bool:
        """True if `try_acquire` would take this amount."""
        free = self.total - self.taken - amount
        if free < 0:
            return False
        held = self._held.get(holder, 0)
        if held == 0 or (holder is None and not self._has_reserve):
            return True
        return held + amount <= _TIMES_FREE * free

    def try_acquire(self, holder: Holder, amount: int = 1) -> bool:
        """Take this amount if there is room; return whether there was."""
        if not self.has_room(holder, amount):
            self.refused += 1
            return False
        self.taken += amount  # as `force_acquire`, which would be one more function on the way of every call
        self._held[holder] = self._held.get(holder, 0) + amount
        return True

    def force_acquire(self, holder: Holder, amount: int = 1) -> None:
        """Take this amount, even beyond the total."""
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

    __slots__ = ("_waiting", "slots", "waiting")

    def __init__(self, limit: int, *, has_reserve: bool = True) -> None:
        """Without a reserve, `limit` is all there is, and one of several holders has at most four fifths of it."""
        self.slots = FairShare(limit, has_reserve=has_reserve)
        self._waiting: dict[Holder, deque[asyncio.Future[None]]] = {}
        """The queues, by holder; the first holder is next."""
        self.waiting = 0
        """The length of all queues together."""

    @property
    def taken(self) -> int:
        return self.slots.taken

    def has_waiting_besides(self, holder: Holder) -> bool:
        """True if another holder waits."""
        return len(self._waiting) > (holder in self._waiting)

    def slot(self, holder: Holder) -> Slot:
        """A slot, still to be entered and acquired."""
        return Slot(self, holder)

    def acquire_nowait(self, holder: Holder) -> bool:
        """Take a slot if one is free for this holder; nothing of it waits then."""
        if not self.slots.has_room(holder):
            return False
        self.slots.force_acquire(holder)
        return True

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
        self.slots.release(holder)
        if self._waiting:
            while not self.slots.is_full and self._hand_on():
                pass

    def reacquire(self, holder: Holder) -> None:
        """Take back a slot that was released for a while, even if none is free: the limit is exceeded for a moment."""
        self.slots.force_acquire(holder)

    def _hand_on(self) -> bool:
        """Give a slot to the first holder that may have one; those passed over have one each, so they are bounded."""
        for holder, queue in self._waiting.items():
            if not self.acquire_nowait(holder):
                continue
            slot = queue.popleft()
            self.waiting -= 1
            del self._waiting[holder]
            if queue:
                self._waiting[holder] = queue  # behind the others
            if slot.cancelled():
                self.slots.release(holder)
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

    def acquire_nowait(self) -> bool:
        """Take it if it is free."""
        self._is_acquired = self._limiter.acquire_nowait(self._holder)
        return self._is_acquired

    async def acquire_within(self, seconds: float) -> bool:
        """Wait for it; whether it has come in time."""
        if self.acquire_nowait():
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._limiter.acquire(self._holder)
                self._is_acquired = True
        return self._is_acquired

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
        del self._before  # it refers to the context, and what is there may refer to this
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
        if self._count == 0:
            self._idle.clear()
        self._count += 1

    def end(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._idle.set()

    async def close(self, timeout: float) -> None:
        """Reject new requests from now on, and wait for those in flight, for `timeout` seconds at most."""
        self.is_closing = True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout)
        except TimeoutError:
            return

    def open(self) -> None:
        """Accept requests again, for another run of the app."""
        self.is_closing = False
