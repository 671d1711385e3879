"""The wait of a failed child for its next attempt: how long, and who may bring it forward."""

from __future__ import annotations

import asyncio
import random
import time

from fastmcp_aggregator.children.backoff import Backoff
from fastmcp_aggregator.concurrency.waits import wait_first

_RENEWAL_PAUSE = 10.0
"""Seconds between two sessions that a remote child forgets, so that it is not asked for new ones without end."""


class Retrying:
    """One child's failures and the waits after them."""

    def __init__(self) -> None:
        self.backoff = Backoff()
        self._wake = asyncio.Event()
        self._at: float | None = None
        self._pause = 0.0
        self._renewed_at = -_RENEWAL_PAUSE

    @property
    def remaining(self) -> float | None:
        """Seconds until the next attempt; None when nobody waits for one."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def failed(self, *, ran_for: float, pause: float, is_crash: bool) -> None:
        """A life that served for so many seconds has failed; for `pause` seconds nobody brings the next one forward.

        `is_crash`: see `Backoff.failed`.
        """
        now = time.monotonic()
        self._wake.clear()
        self._pause = pause
        self._at = now + self.backoff.failed(
            now, ran_for=ran_for, random_fraction=random.random(), at_least=pause, is_crash=is_crash
        )

    def may_renew(self) -> bool:
        """Whether a child that only needs a new session gets it at once; not too often. Then there is no wait."""
        now = time.monotonic()
        if now - self._renewed_at < _RENEWAL_PAUSE:
            return False
        self._wake.clear()
        self._renewed_at = self._at = now
        return True

    def bring_forward(self) -> bool:
        """Make the next attempt now, if the child may be woken; whether there is one to wait for."""
        if self.backoff.is_crash_loop or self._pause > 0:
            return False
        self._wake.set()
        return True

    async def wait(self, stopping: asyncio.Event) -> None:
        """Wait for the next attempt, or until the child is to stop."""
        await wait_first(stopping, self._wake, timeout=self.remaining)
        self._at = None
