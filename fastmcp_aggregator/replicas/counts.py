"""Counts of calls by caller: the token buckets of one process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from fastmcp_aggregator.pipe.bucket import TokenBucket

_MOST_CALLERS = 10_000
"""Callers that are remembered; of more, those that have been quiet longest begin afresh."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`per_minute` calls in the long run, 0: any number; `burst` at once."""

    per_minute: float
    burst: int


class Counts(Protocol):
    """Where calls are counted."""

    def wait(self, key: str, rate: Rate) -> float | Awaitable[float]:
        """Count one call; the seconds until it may be made, 0: now. What has to wait is not counted."""

    async def close(self) -> None:
        """Let go of what is held."""


class CountsInMemory:
    """Counts for one process."""

    def __init__(self, most: int = _MOST_CALLERS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, Rate], TokenBucket] = OrderedDict()

    def wait(self, key: str, rate: Rate) -> float:
        """See Counts."""
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
        """See Counts."""
