"""The rate limiter: token buckets of callers, in the memory of one process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastmcp_aggregator.pipe.bucket import TokenBucket

_MOST_CALLERS = 10_000
"""Buckets that are kept; beyond them the least recently used is dropped, and its caller begins with a full one."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_minute` calls in the long run, 0: any number; `burst` at once."""

    per_minute: float
    burst: int


class InMemoryRateLimiter:
    def __init__(self, most: int = _MOST_CALLERS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, Rate], TokenBucket] = OrderedDict()

    def acquire(self, key: str, rate: Rate) -> float:
        """Take a token for one call; return 0, or the seconds until there is one. A call that must wait takes none."""
        known = key, rate
        bucket = self._buckets.get(known)
        if bucket is None:
            bucket = self._buckets[known] = TokenBucket(burst=rate.burst, rate=rate.per_minute / 60)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(known)
        now = self._clock()
        return 0.0 if bucket.take(now) else bucket.wait(now)

    async def close(self) -> None:
        """There is no connection to close."""
