"""The rate limiter of all replicas together: token buckets in Redis.

While Redis does not answer, or has something else there, each replica limits for itself. It does so a little more amply
all the time: whatever becomes of the buckets in Redis, no caller has more calls than that from each replica. Redis is
retried after a pause, so that one that hangs delays one call in a while, and not each.
"""

from __future__ import annotations

import hashlib
import logging
import time
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.replicas.rate_limiter import Rate
from fastmcp_aggregator.replicas.redis_connection import LOST, PREFIX, Outages, connect, is_of_wrong_type

if TYPE_CHECKING:
    from fastmcp_aggregator.replicas.rate_limiter import InMemoryRateLimiter

logger = logging.getLogger(__name__)

_RETRY_PAUSE = 10.0

# A token bucket by the clock of Redis, which all replicas share. Gone from Redis when it would be full again, and full
# again when it is not what this has written.
_TAKE = """
local burst, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(kept[1] or ''), tonumber(kept[2] or '')
if tokens and at and tokens >= 0 and tokens <= burst and at <= now then
  tokens = math.min(burst, tokens + (now - at) * rate)
else
  tokens = burst
end
local wait = 0
if tokens < 1 then wait = (1 - tokens) / rate else tokens = tokens - 1 end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return tostring(wait)
"""


class RedisRateLimiter:
    """Token buckets in one Redis, and in `own` those of this replica."""

    def __init__(self, url: str, own: InMemoryRateLimiter) -> None:
        """Raises: ConfigError, if this cannot be the address of a Redis. Connects with the first call."""
        self._redis = connect(url)
        self._take: Any = self._redis.register_script(_TAKE)
        self._own = own
        self._retry_at = 0.0
        self._outages = Outages(
            "meanwhile rate limits hold for each replica alone", "rate limits hold for all replicas together"
        )
        self._alarms = TokenBucket.once_a_minute()

    async def acquire(self, key: str, rate: Rate) -> float:
        """Acquire as `own` does, from the tokens of all replicas."""
        if time.monotonic() >= self._retry_at:
            try:
                found = float(await self._take(keys=[_name(key, rate)], args=[rate.burst, rate.per_minute / 60]))
            except (*LOST, ValueError) as error:
                if is_of_wrong_type(error):
                    if self._alarms.take(time.monotonic()):
                        logger.warning("a rate limit in Redis is none of ours; it is counted by each replica alone")
                    return self._own.acquire(key, rate)
                self._retry_at = time.monotonic() + _RETRY_PAUSE
                self._outages.begin(error)
            else:
                self._outages.end()
                return found or self._own.acquire(key, _ample(rate))
        return self._own.acquire(key, rate)

    async def close(self) -> None:
        await self._redis.aclose()


def _ample(rate: Rate) -> Rate:
    """So much more that the clocks of two machines make no difference."""
    return Rate(rate.per_minute * 1.1, rate.burst + 1)


def _name(key: str, rate: Rate) -> str:
    """The key of a bucket, hashed: a caller's name may be any text. Another rate is another bucket."""
    text = f"{key} {rate.per_minute:g} {rate.burst}"
    return f"{PREFIX}:calls:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
