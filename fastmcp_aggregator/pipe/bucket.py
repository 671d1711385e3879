"""A token bucket, for rate limits and throttling. Pure."""

from __future__ import annotations


class TokenBucket:
    """Lets `burst` through at once and `rate` a second after that. Times are monotonic seconds."""

    __slots__ = ("_burst", "_rate", "_then", "_tokens", "rejected")

    def __init__(self, *, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._tokens = burst
        self._then: float | None = None
        self.rejected = 0

    @classmethod
    def once_a_minute(cls) -> TokenBucket:
        """For what is logged once, however often it happens."""
        return cls(burst=1, rate=1 / 60)

    def is_empty(self, now: float) -> bool:
        """True if the next would be rejected."""
        if self._then is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._then) * self._rate)
        self._then = now
        return self._tokens < 1

    def wait(self, now: float) -> float:
        """Seconds until the next may pass."""
        return max(0.0, (1 - self._tokens) / self._rate) if self.is_empty(now) else 0.0

    def spend(self, tokens: float) -> None:
        """Take so many, which may be more than there are."""
        self._tokens -= tokens

    def take(self, now: float) -> bool:
        """Take a token; return whether there was one."""
        if self.is_empty(now):
            self.rejected += 1
            return False
        self._tokens -= 1
        return True
