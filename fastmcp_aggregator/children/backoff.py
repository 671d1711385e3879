"""The back-off: when a failed child is tried again. Pure: the caller brings the time and the randomness.

A child that has served is restarted at once, however often it ends. For one that fails before it can serve, or right
after, the delay doubles with each failure in a row, with full jitter, so that children that failed together don't come
back together (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). A process in a crash loop is
started once every five minutes, or for a call every ten seconds, and never given up. What costs next to nothing to try,
a remote server or a command that does not exist, makes no crash loop.
"""

from __future__ import annotations

from collections import deque

from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS, Timings


def delay_before_attempt(failures: int, random_fraction: float, timings: Timings = DEFAULT_TIMINGS) -> float:
    """Seconds to wait after `failures` failures in a row: exponential, capped, with full jitter.

    `random_fraction` is in [0, 1).
    """
    ceiling: float = min(timings.last_ceiling, timings.first_ceiling * 2 ** min(failures - 1, 16))
    return ceiling * random_fraction


class Backoff:
    """The memory of one child's failures. Times are monotonic seconds."""

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
