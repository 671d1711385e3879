"""The calls of callers, counted in Redis for all replicas together.

While Redis does not answer, each replica counts for itself: calls go on, and limits hold for each replica alone. It is
asked again after a pause, so that a Redis that hangs holds up one call in a while, and not each.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.replicas.redis_connection import LOST, PREFIX, connect, hashed

if TYPE_CHECKING:
    from fastmcp_aggregator.replicas.counts import CountsInMemory, Rate

logger = logging.getLogger(__name__)

_PAUSE = 10.0
"""Seconds after a failure in which it is not asked."""

# A token bucket by the clock of Redis, which all replicas share. Gone from Redis when it would be full again.
_TAKE = """
local burst, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = burst
if kept[1] then
  tokens = math.min(burst, tonumber(kept[1]) + math.max(0, now - tonumber(kept[2])) * rate)
end
local wait = 0
if tokens < 1 then wait = (1 - tokens) / rate else tokens = tokens - 1 end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return tostring(wait)
"""


class CountsInRedis:
    """Counts for all that use one Redis; `meanwhile` counts while it does not answer."""

    def __init__(self, url: str, meanwhile: CountsInMemory) -> None:
        """Raises: ConfigError, if this cannot be the address of a Redis. Connects with the first call."""
        self._redis = connect(url)
        self._take: Any = self._redis.register_script(_TAKE)
        self._meanwhile = meanwhile
        self._ask_again_at = 0.0
        self._is_away = False

    async def wait(self, key: str, rate: Rate) -> float:
        """See Counts."""
        if time.monotonic() >= self._ask_again_at:
            try:
                found = float(await self._take(keys=[_name(key, rate)], args=[rate.burst, rate.per_minute / 60]))
            except (*LOST, ValueError) as error:
                self._ask_again_at = time.monotonic() + _PAUSE
                self._told(error)
            else:
                self._told(None)
                return found
        return self._meanwhile.wait(key, rate)

    def _told(self, error: Exception | None) -> None:
        """Log that Redis has gone, or is back; once, however many calls find out."""
        if self._is_away == (error is not None):
            return
        self._is_away = error is not None
        if error is not None:
            name = error.__class__.__name__
            logger.warning("Redis does not answer (%s); this replica counts calls for itself meanwhile", name)
        else:
            logger.warning("Redis answers again; the replicas count calls together")

    async def close(self) -> None:
        """See Counts."""
        await self._redis.aclose()


def _name(key: str, rate: Rate) -> str:
    """A caller's name may be an address or anything else, and another rate is another bucket."""
    return f"{PREFIX}:calls:{hashed(f'{key} {rate.per_minute:g} {rate.burst}')}"
