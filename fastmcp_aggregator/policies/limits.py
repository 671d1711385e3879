"""The rate limiting policy: each caller over HTTP has a token bucket, of so many calls a minute, and so many at once.

The buckets are in memory, or, where several replicas serve, in Redis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING

from fastmcp_aggregator.access.principal import KEY_MARK
from fastmcp_aggregator.policies.policy import Policy, Rejected
from fastmcp_aggregator.replicas.rate_limiter import InMemoryRateLimiter, Rate
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.sections import DEFAULT_RATE, GROUP_MARK

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call
    from fastmcp_aggregator.replicas.redis_rate_limiter import RedisRateLimiter


TOO_MANY_CALLS = -32029
"""JSON-RPC: the caller exceeds its rate limit; what 429 is in HTTP."""


class RateLimiting(Policy):
    """Rejects calls beyond the rate limit. `of_callers` has what differs from `general`: by a caller's name, or by
    `group:` and a group's id.
    """

    def __init__(
        self, general: Rate, of_callers: Mapping[str, Rate], limiter: InMemoryRateLimiter | RedisRateLimiter
    ) -> None:
        self._general = general
        self._of_callers = of_callers
        self._limiter = limiter

    def is_ready_for(self, call: Call) -> bool:
        """Unless the buckets are elsewhere."""
        return isinstance(self._limiter, InMemoryRateLimiter) or not call.caller.is_remote

    def before(self, call: Call) -> Awaitable[None] | None:
        """Take a token of the caller's. Raises Rejected: there is none; `retry_in` says when there is."""
        if not call.caller.is_remote:
            return None
        key, rate = self._rate_of(call.principal.name, call.group)
        if not rate.per_minute:
            return None
        wait = self._limiter.acquire(key, rate)
        if not isinstance(wait, float):
            return _decide_later(wait, rate)
        _decide(wait, rate)
        return None

    async def close(self) -> None:
        await self._limiter.close()

    async def take(self, name: str, group: str) -> None:
        """Take a token of a caller's for what is no call. Raises Rejected: as `before` does."""
        key, rate = self._rate_of(name, group)
        if rate.per_minute:
            wait = self._limiter.acquire(key, rate)
            _decide(wait if isinstance(wait, float) else await wait, rate)

    def _rate_of(self, name: str, group_id: str) -> tuple[str, Rate]:
        """The caller's own rate, for all that it calls; else that of the group it calls through, for this group."""
        if name in self._of_callers and not name.startswith(GROUP_MARK):
            return name, self._of_callers[name]
        group = f"{GROUP_MARK}{group_id}"
        if group in self._of_callers:
            return f"{name} {group}", self._of_callers[group]
        return name, self._general


def limits_from_settings(settings: AggregatorSettings, *, has_auth: bool) -> RateLimiting | None:
    """The limits that the settings ask for, or, where callers authenticate, the usual ones; None: there are none."""
    usual = DEFAULT_RATE if has_auth else 0.0
    general = Rate(usual if settings.rate_limit is None else settings.rate_limit, settings.rate_burst)
    of_callers = {
        _principal(name): Rate(
            general.per_minute if own.rate_limit is None else own.rate_limit,
            general.burst if own.rate_burst is None else own.rate_burst,
        )
        for name, own in settings.callers.items()
    }
    if not any(rate.per_minute for rate in (general, *of_callers.values())):
        return None
    return RateLimiting(general, of_callers, _limiter(settings))


def _principal(entry: str) -> str:
    """The principal of an entry of `callers`: without a source, it is the name of a key."""
    return entry if ":" in entry else f"{KEY_MARK}{entry}"


def _limiter(settings: AggregatorSettings) -> InMemoryRateLimiter | RedisRateLimiter:
    if settings.redis_url is None:
        return InMemoryRateLimiter()
    from fastmcp_aggregator.replicas.redis_rate_limiter import RedisRateLimiter  # noqa: PLC0415 - an extra, for replicas only

    secret = None if settings.redis_key is None else settings.redis_key.get_secret_value()
    return RedisRateLimiter(settings.redis_url.get_secret_value(), InMemoryRateLimiter(), secret)


def _decide(wait: float, rate: Rate) -> None:
    if wait > 0:
        allowed = f"{rate.per_minute:g} calls a minute, and {rate.burst} at once"
        raise Rejected(TOO_MANY_CALLS, f"rate limit exceeded: {allowed}; try again in {wait:.1f} s", retry_in=wait)


async def _decide_later(wait: Awaitable[float], rate: Rate) -> None:
    _decide(await wait, rate)
