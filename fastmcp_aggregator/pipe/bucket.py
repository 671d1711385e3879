"""A token bucket: how many of something may pass, in a burst and in the long run. Pure."""

from __future__ import annotations


class TokenBucket:
    """Lets `burst` through at once and `rate` a second after that. Times are monotonic seconds."""

    __slots__ = ("_burst", "_rate", "_then", "_tokens", "refused")

    def __init__(self, *, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._tokens = burst
        self._then: float | None = None
        self.refused = 0

    def is_empty(self, now: float) -> bool:
        """Whether the next would be refused."""
        if self._then is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._then) * self._rate)
        self._then = now
        return self._tokens < 1

    def wait(self, now: float) -> float:
        """Seconds until the next may pass."""
        return max(0.0, (1 - self._tokens) / self._rate) if self.is_empty(now) else 0.0

    def take(self, now: float) -> bool:
        """Whether one more may pass."""
        if self.is_empty(now):
            self.refused += 1
            return False
        self._tokens -= 1
        return True
