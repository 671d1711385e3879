"""When a failed child is tried again. Pure: the caller brings the time and the randomness.

A child that has served is tried at once, however often it ends. For one that fails before it can serve, or right after,
the delay doubles with each failure in a row, with full jitter, so that children that failed together don't come back
together (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). A process that crashes so again
and again is started once every five minutes, or for a call every ten seconds, and never given up. What costs next to
nothing to try, a server elsewhere or a command that does not exist, makes no crash loop.
"""

from __future__ import annotations

from collections import deque

FIRST_CEILING = 0.5
LAST_CEILING = 60.0
SERVED_AFTER = 1.0
"""Seconds of running after which a child has served, and those before it are forgotten."""
CRASH_LOOP = 5
"""So many failures within `CRASH_WINDOW` seconds make a crash loop."""
CRASH_WINDOW = 60.0
CRASH_LOOP_DELAY = 300.0
CRASH_LOOP_PAUSE = 10.0
"""Seconds in a crash loop before a call may have the child tried."""


def delay_before_attempt(failures: int, random_fraction: float) -> float:
    """Seconds to wait after `failures` failures in a row: exponential, capped, with full jitter.

    `random_fraction` is in [0, 1).
    """
    ceiling: float = min(LAST_CEILING, FIRST_CEILING * 2 ** min(failures - 1, 16))
    return ceiling * random_fraction


class Backoff:
    """The memory of one child's failures. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._recent: deque[float] = deque(maxlen=CRASH_LOOP)
        self.is_crash_loop = False

    def failed(
        self, now: float, *, ran_for: float, random_fraction: float, at_least: float = 0.0, is_crash: bool = True
    ) -> float:
        """The child failed after running for so many seconds (0: it never ran); seconds until the next attempt.

        `is_crash` says that a process of ours was started for it.
        """
        if ran_for >= SERVED_AFTER:
            self._in_a_row = 0
            self._recent.clear()
            self.is_crash_loop = False
            return at_least
        self._in_a_row += 1
        if is_crash:
            self._recent.append(now)
        if len(self._recent) == CRASH_LOOP and now - self._recent[0] <= CRASH_WINDOW:
            self.is_crash_loop = True
        delay = CRASH_LOOP_DELAY if self.is_crash_loop else delay_before_attempt(self._in_a_row, random_fraction)
        return max(at_least, delay)

    @property
    def pause_before_call(self) -> float:
        """Seconds from a failure on in which no call brings the next attempt forward."""
        return CRASH_LOOP_PAUSE if self.is_crash_loop else 0.0
