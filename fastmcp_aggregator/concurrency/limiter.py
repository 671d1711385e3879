"""Turns: how many of something run at once, and who comes next. First come, first served.

Whoever waits for a turn here may hold one elsewhere: an HTTP request has one of its front's. It steps aside meanwhile
(`stepping_aside`), so that requests that wait for one child do not keep those for others from running.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar

stepping_aside: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar("aside", default=nullcontext)
"""What a request does while it waits for a turn."""


class Turns:
    """At most `limit` turns are taken at once."""

    __slots__ = ("_limit", "_queue", "taken")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    @property
    def waiting(self) -> int:
        """How many wait for a turn."""
        return len(self._queue)

    def take(self) -> bool:
        """Take a turn if one is free; nobody waits then."""
        if self.taken >= self._limit:
            return False
        self.taken += 1
        return True

    async def wait(self) -> None:
        """Take a turn when those who came before have had theirs. Who is cancelled leaves the queue."""
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._queue.remove(turn)
            if not turn.cancelled():
                self.give_back()  # it came at the same moment
            raise

    def give_back(self) -> None:
        """Let the next one have the turn."""
        self.taken -= 1
        while self._queue and self.taken < self._limit:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                self.taken += 1

    def take_back(self) -> None:
        """Take again a turn that was given back for a while, even if none is free: there are more for a moment."""
        self.taken += 1
