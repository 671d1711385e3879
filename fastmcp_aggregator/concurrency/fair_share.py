"""A capacity that several holders use together, so that none of them can keep the others out.

Theory. Everybody may use what is free. A quarter as much again is kept aside, and only those may use it who have less
than that quarter: so whoever comes finds room, though somebody else has taken all that there was and keeps it. It needs
no history, takes nothing away from anybody, and costs the same for any number of holders.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from fastmcp_aggregator.concurrency.limiter import released_while_waiting

Holder = Hashable
"""Who uses a part of the capacity: a principal, or the address of a client that has none."""


def share_of(capacity: int) -> int:
    """What is kept aside, and what a holder may have who uses it."""
    return max(1, capacity // 4)


class FairShare:
    """So much of something: places, bytes."""

    __slots__ = ("_capacity", "_held", "_share", "taken")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._share = share_of(capacity)
        self._held: dict[Holder, int] = {}
        self.taken = 0
        """By all of them together."""

    @property
    def is_full(self) -> bool:
        """Whether there is nothing left for anybody."""
        return self.taken >= self._capacity + self._share

    def take(self, holder: Holder, amount: int = 1) -> bool:
        """Take so much, if there is room for it."""
        is_within_share = self._held.get(holder, 0) + amount <= self._share
        if self.taken + amount > self._capacity + (self._share if is_within_share else 0):
            return False
        self.take_anyway(holder, amount)
        return True

    def take_anyway(self, holder: Holder, amount: int = 1) -> None:
        """Take so much, even if there is no room for it."""
        self.taken += amount
        self._held[holder] = self._held.get(holder, 0) + amount

    def give_back(self, holder: Holder, amount: int = 1) -> None:
        """Give back so much of what the holder has taken."""
        self.taken -= amount
        self._held[holder] -= amount
        if self._held[holder] == 0:
            del self._held[holder]


class FairLimiter:
    """At most so many turns are taken at once, and a share more. Holders that wait come one after the other; what one
    holder waits for comes in order.
    """

    __slots__ = ("_turns", "_waiting")

    def __init__(self, limit: int) -> None:
        self._turns = FairShare(limit)
        self._waiting: dict[Holder, deque[asyncio.Future[None]]] = {}
        """By holder; the first of them is next."""

    @property
    def taken(self) -> int:
        """How many are taken."""
        return self._turns.taken

    @contextmanager
    def turn(self, holder: Holder) -> Iterator[Turn]:
        """A turn, which is still to come. It is released while what is done meanwhile waits for something else."""
        turn = Turn(self, holder)
        before = released_while_waiting.set(turn.released)
        try:
            yield turn
        finally:
            released_while_waiting.reset(before)
            turn.end()

    def take(self, holder: Holder) -> bool:
        """Take a turn if one is free for this holder, of whom nobody waits then."""
        return self._turns.take(holder)

    async def wait(self, holder: Holder) -> None:
        """Take a turn when it is this holder's. Who is cancelled leaves the queue."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(holder, turn)
            else:
                self.give_back(holder)  # it came at the same moment
            raise

    def give_back(self, holder: Holder) -> None:
        """Let the next one have the turn."""
        self._turns.give_back(holder)
        while not self._turns.is_full and self._hand_on():
            pass

    def take_back(self, holder: Holder) -> None:
        """Take again a turn that was given back for a while, even if none is free: there are more for a moment."""
        self._turns.take_anyway(holder)

    def _hand_on(self) -> bool:
        """Give a turn to the first who may have one; those passed over have a share each, so they are few."""
        for holder, queue in self._waiting.items():
            if not self._turns.take(holder):
                continue
            turn = queue.popleft()
            del self._waiting[holder]
            if queue:
                self._waiting[holder] = queue  # behind the others
            if turn.cancelled():
                self._turns.give_back(holder)
            else:
                turn.set_result(None)
            return True
        return False

    def _leave(self, holder: Holder, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(holder)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[holder]


class Turn:
    """One turn of a holder, which others have while it is released."""

    __slots__ = ("_holder", "_is_had", "_is_over", "_turns")

    def __init__(self, turns: FairLimiter, holder: Holder) -> None:
        self._turns = turns
        self._holder = holder
        self._is_had = False
        self._is_over = False

    async def comes_within(self, seconds: float) -> bool:
        """Wait for it; whether it has come in time."""
        if not self._turns.take(self._holder):
            try:
                async with asyncio.timeout(seconds):
                    await self._turns.wait(self._holder)
            except TimeoutError:
                return False
        self._is_had = True
        return True

    @contextmanager
    def released(self) -> Iterator[None]:
        """While its holder waits for something else. It may do several things at once, some of which go on."""
        self._give_back()
        try:
            yield
        finally:
            if not self._is_had and not self._is_over:
                self._turns.take_back(self._holder)
                self._is_had = True

    def end(self) -> None:
        """Give it back for good."""
        self._is_over = True
        self._give_back()

    def _give_back(self) -> None:
        if self._is_had:
            self._is_had = False
            self._turns.give_back(self._holder)
