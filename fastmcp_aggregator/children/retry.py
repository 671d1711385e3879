"""The wait of a failed child for its next attempt: how long, and who may bring it forward."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable

from fastmcp_aggregator.children.backoff import Backoff
from fastmcp_aggregator.concurrency.waits import wait_first

_RENEWAL_PAUSE = 10.0
"""Seconds between two sessions that a remote child forgets, so that it is not asked for new ones without end."""


class Retry:
    """One child's failures and the waits after them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.backoff = Backoff()
        self._clock = clock
        self._wake = asyncio.Event()
        self._resting = asyncio.Event()
        self._at: float | None = None
        self._earliest = 0.0
        """From when on a call may bring the attempt forward."""
        self._renewed_at = -_RENEWAL_PAUSE

    @property
    def remaining(self) -> float | None:
        """Seconds until the next attempt; None when nobody waits for one, or none will be made."""
        return None if self._at is None or math.isinf(self._at) else max(0.0, self._at - self._clock())

    @property
    def before_call(self) -> float | None:
        """Seconds until the next attempt, or until a call may bring it forward, if it may not yet."""
        remaining, held_back = self.remaining, self._earliest - self._clock()
        return min(remaining, held_back) if remaining is not None and held_back > 0 else remaining

    def failed(self, *, ran_for: float, pause: float, is_crash: bool) -> None:
        """A life that served for so many seconds has failed; for `pause` seconds nobody brings the next one forward;
        if these are endless, there is none.

        `is_crash`: see `Backoff.failed`.
        """
        now = self._clock()
        self._wake.clear()
        self._at = now + self.backoff.failed(
            now, ran_for=ran_for, random_fraction=random.random(), at_least=pause, is_crash=is_crash
        )
        self._earliest = now + max(pause, self.backoff.pause_before_call)

    def may_renew(self) -> bool:
        """Whether a child that only needs a new session gets it at once; not too often. Then there is no wait."""
        now = self._clock()
        if now - self._renewed_at < _RENEWAL_PAUSE:
            return False
        self._wake.clear()
        self._renewed_at = self._at = now
        return True

    def bring_forward(self) -> bool:
        """Make the next attempt now, if the child may be woken; whether there is one to wait for."""
        if self._clock() < self._earliest:
            return False
        self._resting.clear()
        self._wake.set()
        return True

    def rest(self) -> None:
        """Make no further attempt until one is brought forward."""
        self._resting.set()

    async def wait(self, stopping: asyncio.Event) -> None:
        """Wait for the next attempt, or until the child is to stop."""
        await wait_first(stopping, self._wake, self._resting, timeout=self.remaining)
        if self._resting.is_set():
            await wait_first(stopping, self._wake)
        self._at = None
