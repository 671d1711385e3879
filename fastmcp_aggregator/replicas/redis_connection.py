"""The way to Redis: made of the setting `redis_url`, bounded, and checked at the start. No message shows a password."""

from __future__ import annotations

import hashlib
from typing import Any

from fastmcp_aggregator.errors import ConfigError, ConfigProblem, SharedStateError

PREFIX = "fastmcp-aggregator"
"""How every key and channel of ours begins."""
BOUND = 0.5
"""Seconds that a call waits for Redis."""
START_BOUND = 5.0
"""Seconds that the start waits for it."""


def _not_usable(message: str) -> ConfigError:
    return ConfigError("settings", [ConfigProblem("invalid_schema", "redis_url", message)])


try:
    from redis.asyncio import Redis
    from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError
except ImportError:
    raise _not_usable("needs the package redis: pip install 'fastmcp-aggregator[redis]'") from None

LOST = (RedisError, OSError, TimeoutError)
"""What is raised when Redis cannot be asked."""
_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)


def connect(url: str, *, bound: float | None = None) -> Redis:
    """A client, which connects with its first command; one command waits for `bound` seconds at most.

    Raises:
        ConfigError: this cannot be the address of a Redis.
    """
    seconds = BOUND if bound is None else bound
    try:
        return Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds)
    except ValueError:
        raise _not_usable("must be like redis://HOST:PORT/0, rediss://… or unix://PATH") from None


async def require_reachable(url: str) -> None:
    """Whether Redis answers and lets us in.

    Raises:
        SharedStateError: it does not; the message says why, and what to do.
    """
    redis = connect(url, bound=START_BOUND)
    try:
        await redis.ping()
    except LOST as error:
        raise SharedStateError(f"redis_url: {_reason(address_of(redis), error)}") from None
    finally:
        await redis.aclose()


def address_of(redis: Redis) -> str:
    """Where it is, without what lets us in."""
    where: dict[str, Any] = redis.connection_pool.connection_kwargs
    return str(where.get("path") or f"{where.get('host', 'localhost')}:{where.get('port', 6379)}")


def channel_scope(redis: Redis) -> str:
    """What the channels of one hub begin with: channels, unlike keys, are the same in all databases of a Redis."""
    return f"{PREFIX}:{redis.connection_pool.connection_kwargs.get('db') or 0}"


def hashed(text: str) -> str:
    """A name for a key in Redis, which may be of anything."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _reason(address: str, error: Exception) -> str:
    if isinstance(error, _REFUSALS) or isinstance(error.__cause__, _REFUSALS):
        return f"Redis at {address} refuses the user or the password in it; correct them"
    return (
        f"Redis at {address} cannot be reached ({error.__class__.__name__}); "
        "start it, correct the address, or leave redis_url out to serve on one machine alone"
    )
