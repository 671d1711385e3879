"""Connections to Redis, from `redis_url`: with timeouts, checked at the start. No message shows a password."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from fastmcp_aggregator.errors import ConfigError, ConfigProblem, SharedStateError
from fastmcp_aggregator.pipe.bucket import TokenBucket

logger = logging.getLogger(__name__)

PREFIX = "fastmcp-aggregator"
"""The prefix of every key and channel of ours."""
_TIMEOUT = 0.5
"""Seconds that a command has, unless the address says `socket_timeout`."""
_START_TIMEOUT = 5.0
_OUTAGES, _OUTAGES_PER_SECOND = 3, 1 / 60
"""Outages that are logged, at once and a second: anyone who can write to Redis can have it end connections."""


def _not_usable(message: str) -> ConfigError:
    return ConfigError("settings", [ConfigProblem("invalid_schema", "redis_url", message)])


try:
    from redis.asyncio import Redis
    from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError, ResponseError
except ImportError:
    raise _not_usable("needs the package redis: pip install 'fastmcp-aggregator[redis]'") from None

LOST = (RedisError, OSError, TimeoutError)
"""Exceptions that mean that Redis is out of reach."""
_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)


def connect(url: str, *, timeout: float = _TIMEOUT) -> Redis:
    """Make a client; it connects with its first command, and each command has `timeout` seconds.

    Raises:
        ConfigError: this cannot be the address of a Redis.
    """
    try:
        return Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
    except ValueError:
        raise _not_usable("must be like redis://HOST:PORT/0, rediss://… or unix://PATH") from None


async def require_reachable(url: str) -> None:
    """Ping Redis.

    Raises:
        SharedStateError: it does not answer, or rejects our credentials; the message says which, and what to do.
    """
    redis = connect(url, timeout=_START_TIMEOUT)
    try:
        await redis.ping()
    except LOST as error:
        raise SharedStateError(f"redis_url: {_reason(address_of(redis), error)}") from None
    finally:
        await redis.aclose()


@dataclass(frozen=True, slots=True)
class RedisTimings:
    """In seconds, where nothing else is said."""

    subscribe_timeout: float = _START_TIMEOUT
    """How long a replica that starts waits for its channels."""
    ping_after: float = 10.0
    """The silence after which Redis is pinged; after as much again without an answer the connection is lost."""
    backoff: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0)
    """The delays before reconnects, of which the last is repeated."""
    liveness_interval: float = 5.0
    """The time between two checks whether the replica that is to answer is still there, and between its own words."""
    key_interval: float = 10.0
    """The time between two looks whether Redis still has the key."""
    most_queued_bytes: int = 32 * 1024 * 1024


DEFAULT_TIMINGS = RedisTimings()


class Outages:
    """Tells in the log that the connection is lost, and that it is back; of many in a row, a few."""

    def __init__(self, meanwhile: str, again: str) -> None:
        """How it is while it is lost, and when it is back."""
        self._meanwhile = meanwhile
        self._again = again
        self._lines = TokenBucket(burst=_OUTAGES, rate=_OUTAGES_PER_SECOND)
        self._is_on = self._is_told = False

    def begin(self, error: Exception) -> None:
        if not self._is_on:
            self._is_on = True
            self._is_told = self._lines.take(time.monotonic())
            if self._is_told:
                logger.warning("connection to Redis lost (%s); %s", error.__class__.__name__, self._meanwhile)

    def end(self) -> None:
        if self._is_on and self._is_told:
            logger.warning("connection to Redis restored; %s", self._again)
        self._is_on = False


def is_of_wrong_type(error: Exception) -> bool:
    """True if Redis has another type of value there than the command is for."""
    return isinstance(error, ResponseError) and "WRONGTYPE" in str(error)


def address_of(redis: Redis) -> str:
    """Its host and port, or its socket; without credentials."""
    where: dict[str, Any] = redis.connection_pool.connection_kwargs
    return str(where.get("path") or f"{where.get('host', 'localhost')}:{where.get('port', 6379)}")


def channel_scope(redis: Redis) -> str:
    """The prefix of one hub's channels; it names the database, because channels, unlike keys, are in none."""
    return f"{PREFIX}:{redis.connection_pool.connection_kwargs.get('db') or 0}"


def _reason(address: str, error: Exception) -> str:
    if isinstance(error, _REFUSALS) or isinstance(error.__cause__, _REFUSALS):
        return f"Redis at {address} refuses the user or the password in it; correct them"
    return (
        f"Redis at {address} cannot be reached ({error.__class__.__name__}); "
        "start it, correct the address, or leave redis_url out to serve on one machine alone"
    )
