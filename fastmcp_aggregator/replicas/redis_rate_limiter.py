"""The rate limiter of all replicas together: token buckets in Redis.

While Redis does not answer, or has something else there, each replica limits for itself. It does so a little more amply
all the time: whatever becomes of the buckets in Redis, no caller has more calls than that from each replica. Redis is
retried after a pause, so that one that hangs delays one call in a while, and not each.

With a secret that the replicas share, a bucket is authenticated: one that another program has written is no bucket, so
that it takes no calls from anybody. One that is put back is refilled for its age, so it is never emptier than it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

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

_LARGEST = 200
"""Bytes of a bucket that is authenticated, with room to spare."""
# Replaces such a bucket, if it is still the one that was read.
_REPLACE = f"""
if redis.call('GETRANGE', KEYS[1], 0, {_LARGEST}) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
_ATTEMPTS = 32
"""How often a bucket is read again that another replica has changed meanwhile."""


class RedisRateLimiter:
    """Token buckets in one Redis, and in `own` those of this replica."""

    def __init__(self, url: str, own: InMemoryRateLimiter, secret: str | None = None) -> None:
        """Raises: ConfigError, if this cannot be the address of a Redis. Connects with the first call."""
        self._redis = connect(url)
        self._take: Any = self._redis.register_script(_TAKE)
        self._replace: Any = self._redis.register_script(_REPLACE)
        self._key = b"" if secret is None else hashlib.sha256(b"rate limits " + secret.encode()).digest()
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """The buckets that are read and changed here: those of one caller one after the other."""
        self.longest_wait = 1.0
        """Seconds that a call waits for the others of its caller, at most; then this replica decides alone."""
        self._own = own
        self._retry_at = 0.0
        self._outages = Outages(
            "meanwhile rate limits hold for each replica alone", "rate limits hold for all replicas together"
        )
        self._alarms = TokenBucket.once_a_minute()

    async def acquire(self, key: str, rate: Rate) -> float:
        """Acquire as `own` does, from the tokens of all replicas."""
        name = _name(key, rate, self._key)
        try:
            async with asyncio.timeout(self.longest_wait) as deadline, self._lock_of(name):
                deadline.reschedule(None)
                return await self._acquired(name, key, rate)
        except TimeoutError:
            return self._acquired_here(key, rate)

    async def _acquired(self, name: str, key: str, rate: Rate) -> float:
        if time.monotonic() < self._retry_at:
            return self._acquired_here(key, rate)
        try:
            found = await (self._taken_authenticated(name, rate) if self._key else self._taken(name, rate))
        except (*LOST, ValueError) as error:
            if is_of_wrong_type(error):
                self._tell_of_other()
            else:
                self._retry_at = time.monotonic() + _RETRY_PAUSE
                self._outages.begin(error)
            return self._acquired_here(key, rate)
        self._outages.end()
        return found or self._own.acquire(key, _ample(rate))

    def _acquired_here(self, key: str, rate: Rate) -> float:
        return self._own.acquire(key, rate) or self._own.acquire(key, _ample(rate))  # that of both ways together

    async def _taken(self, name: str, rate: Rate) -> float:
        return float(await self._take(keys=[name], args=[rate.burst, rate.per_minute / 60]))

    async def _taken_authenticated(self, name: str, rate: Rate) -> float:
        per_second = rate.per_minute / 60
        for _ in range(_ATTEMPTS):
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.time()
                pipe.getrange(name, 0, _LARGEST)
                (seconds, microseconds), kept = await pipe.execute()
            now: float = seconds + microseconds / 1_000_000
            left, then = self._opened(name, kept) or (rate.burst, now)
            tokens = min(rate.burst, left + (now - then) * per_second) if then <= now else rate.burst  # it was set back
            if tokens < 1:
                return (1 - tokens) / per_second
            lasts = int(rate.burst / per_second * 1000) + 1000
            if await self._replace(keys=[name], args=[kept, self._authenticated(name, tokens - 1, now), lasts]):
                break
        return 0.0

    def _opened(self, name: str, kept: bytes) -> tuple[float, float] | None:
        """The tokens of a bucket, and when there were so many; None: there is none, or another program has made it."""
        if not kept:
            return None
        try:
            tokens, then, _ = kept.split()
            bucket = float(tokens), float(then)
            if hmac.compare_digest(kept, self._authenticated(name, *bucket)):
                return bucket
        except ValueError:
            pass
        self._tell_of_other()
        return None

    def _authenticated(self, name: str, tokens: float, now: float) -> bytes:
        text = f"{tokens:.6f} {now:.6f}"
        return f"{text} {_mac(f'{name} {text}', self._key)}".encode()

    def _lock_of(self, name: str) -> AbstractAsyncContextManager[Any]:
        return self._reading.setdefault(name, asyncio.Lock()) if self._key else nullcontext()

    def _tell_of_other(self) -> None:
        if self._alarms.take(time.monotonic()):
            logger.warning("a rate limit in Redis is none of ours; it is counted by each replica alone")

    async def close(self) -> None:
        await self._redis.aclose()


def _ample(rate: Rate) -> Rate:
    """So much more that the clocks of two machines make no difference."""
    return Rate(rate.per_minute * 1.1, rate.burst + 1)


def _name(key: str, rate: Rate, secret: bytes = b"") -> str:
    """The key of a bucket, hashed: a caller's name may be any text. Another rate is another bucket."""
    return f"{PREFIX}:calls:{_mac(f'{key} {rate.per_minute:g} {rate.burst}', secret)}"


def _mac(text: str, key: bytes) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=key, digest_size=16).hexdigest()
