"""The retries of a failed child: the back-off, how long until the next attempt, and who may trigger it earlier.

A child that has served is restarted at once, however often it ends. For one that fails before it can serve, or right
after, the delay doubles with each failure in a row, with full jitter, so that children that failed together don't come
back together (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). A process in a crash loop is
started once every five minutes, or for a call every ten seconds, and never given up. What costs next to nothing to try,
a remote server or a command that does not exist, makes no crash loop.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque

from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS, Timings
from fastmcp_aggregator.concurrency.waits import wait_first


def delay_before_attempt(failures: int, random_fraction: float, timings: Timings = DEFAULT_TIMINGS) -> float:
    """Seconds to wait after `failures` failures in a row: exponential, capped, with full jitter.

    `random_fraction` is in [0, 1).
    """
    ceiling: float = min(timings.last_ceiling, timings.first_ceiling * 2 ** min(failures - 1, 16))
    return ceiling * random_fraction


class Backoff:
    """The memory of one child's failures. Pure: the caller brings the monotonic seconds and the randomness."""

    def __init__(self, timings: Timings = DEFAULT_TIMINGS) -> None:
        self._timings = timings
        self._in_a_row = 0
        self._recent: deque[float] = deque(maxlen=timings.crash_loop)
        self.is_crash_loop = False

    def failed(
        self, now: float, *, ran_for: float, random_fraction: float, at_least: float = 0.0, is_crash: bool = True
    ) -> float:
        """Record a failure after so many seconds of running (0: it never ran); returns the seconds until the next
        attempt.

        `is_crash` says that a process of ours was started for it.
        """
        timings = self._timings
        if ran_for >= timings.served_after:
            self._in_a_row = 0
            self._recent.clear()
            self.is_crash_loop = False
            return at_least
        self._in_a_row += 1
        if is_crash:
            self._recent.append(now)
        if len(self._recent) == timings.crash_loop and now - self._recent[0] <= timings.crash_window:
            self.is_crash_loop = True
        if self.is_crash_loop:
            return max(at_least, timings.crash_loop_delay)
        return max(at_least, delay_before_attempt(self._in_a_row, random_fraction, timings))

    @property
    def pause_before_call(self) -> float:
        """Seconds after a failure in which no call triggers the next attempt."""
        return self._timings.crash_loop_pause if self.is_crash_loop else 0.0


class Retry:
    """One child's failures and the waits after them."""

    def __init__(self, timings: Timings = DEFAULT_TIMINGS) -> None:
        self.backoff = Backoff(timings)
        self._timings = timings
        self._clock = timings.clock
        self._wake = asyncio.Event()
        self._suspended = asyncio.Event()
        self._at: float | None = None
        self._earliest = 0.0
        """The time from which on a call may trigger the attempt."""
        self._renewed_at = -math.inf

    @property
    def remaining(self) -> float | None:
        """Seconds until the next attempt; None when none is awaited, or will be made."""
        return None if self._at is None or math.isinf(self._at) else max(0.0, self._at - self._clock())

    @property
    def before_call(self) -> float | None:
        """Seconds until the next attempt, or until a call may trigger it, if it may not yet."""
        remaining, held_back = self.remaining, self._earliest - self._clock()
        return min(remaining, held_back) if remaining is not None and held_back > 0 else remaining

    def failed(self, *, ran_for: float, pause: float, is_crash: bool) -> None:
        """Schedule the next attempt after a failure that ended so many seconds of serving.

        `pause`: minimum seconds before a retry, even on demand; infinite: there is none. `is_crash`: see
        `Backoff.failed`.
        """
        now = self._clock()
        self._wake.clear()
        self._at = now + self.backoff.failed(
            now, ran_for=ran_for, random_fraction=self._timings.jitter(), at_least=pause, is_crash=is_crash
        )
        self._earliest = now + max(pause, self.backoff.pause_before_call)

    def may_renew(self) -> bool:
        """True if a child that only needs a new session gets it at once; not too often. Then there is no wait."""
        now = self._clock()
        if now - self._renewed_at < self._timings.renewal_pause:
            return False
        self._wake.clear()
        self._renewed_at = self._at = now
        return True

    def trigger(self) -> bool:
        """Make the next attempt now, if that is allowed yet; whether there is one to wait for."""
        if self._clock() < self._earliest:
            return False
        self._suspended.clear()
        self._wake.set()
        return True

    def suspend(self) -> None:
        """Make no further attempt until one is triggered."""
        self._suspended.set()

    async def wait(self, stopping: asyncio.Event) -> None:
        """Wait for the next attempt, or until the child is to stop."""
        await wait_first(stopping, self._wake, self._suspended, timeout=self.remaining)
        if self._suspended.is_set():
            await wait_first(stopping, self._wake)
        self._at = None
