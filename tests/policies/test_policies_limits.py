"""How often a caller may call: whose calls are counted, together with which, and what is said to one too many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from support.doubles import Clock, call, run
from support.redis_server import RedisServer, needs_redis
from support.wire import PATIENCE, until

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.policies.limits import RateLimiting, limits_from_settings
from fastmcp_aggregator.policies.policy import Rejected
from fastmcp_aggregator.policies.stack import PolicyStack
from fastmcp_aggregator.replicas.rate_limiter import InMemoryRateLimiter, Rate
from fastmcp_aggregator.replicas.redis_rate_limiter import RedisRateLimiter
from fastmcp_aggregator.settings.model import load_settings

SLOW = Rate(per_minute=6, burst=3)
"""One every ten seconds, and three at once."""


def call_of(name: str = "alice", group: str = "default", *, is_remote: bool = True) -> Call:
    return call(Principal(name), group, "tools/call", "s", "t", {}, is_remote=is_remote)


def passes(limits: RateLimiting, call: Call) -> bool:
    try:
        limits.before(call)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([0, 0, 0, 0], "yyyn"),  # a burst
        ([0, 0, 0, 9.9, 0.2, 0], "yyynyn"),  # one more for each ten seconds
        ([0, 0, 0, 0, 0, 10], "yyynny"),  # what was refused does not count
        ([0, 0, 0, 3600, 0, 0, 0], "yyyyyyn"),  # a rest brings no more than a burst
        ([10] * 12, "y" * 12),  # the rate can be kept up
        ([5] * 12, "yyyyynynynyn"),  # and no other
    ],
)
def test_calls_pass_at_the_rate_and_as_a_burst(gaps: list[float], expected: str) -> None:
    clock = Clock()
    limits = RateLimiting(SLOW, {}, InMemoryRateLimiter(clock=clock))
    found = ""
    for gap in gaps:
        clock.now += gap
        found += "y" if passes(limits, call_of()) else "n"
    assert found == expected


async def test_one_too_many_is_told_when_to_try_again_and_then_passes() -> None:
    clock = Clock()
    stack = PolicyStack([RateLimiting(SLOW, {}, InMemoryRateLimiter(clock=clock))])

    async def forward(_: Any = None) -> dict[str, Any]:
        return {}

    for _ in range(3):
        await run(stack, call_of(), forward)
    clock.now += 4
    with pytest.raises(MCPError) as caught:
        await run(stack, call_of(), forward)
    assert caught.value.error.code == -32029
    assert caught.value.error.message == "rate limit exceeded: 6 calls a minute, and 3 at once; try again in 6.0 s"
    assert caught.value.error.data == {"retryIn": 6.0}
    clock.now += caught.value.error.data["retryIn"]
    assert await run(stack, call_of(), forward) == {}


def test_only_calls_over_http_are_counted() -> None:
    limits = RateLimiting(SLOW, {}, InMemoryRateLimiter())
    assert all(passes(limits, call_of(is_remote=False)) for _ in range(10))
    assert [passes(limits, call_of()) for _ in range(4)] == [True, True, True, False]


def test_each_caller_has_calls_of_its_own_in_all_groups_together() -> None:
    limits = RateLimiting(SLOW, {}, InMemoryRateLimiter())
    assert [passes(limits, call_of("alice", group)) for group in ("a", "b", "a", "b")] == [True, True, True, False]
    assert passes(limits, call_of("bob"))


@pytest.mark.parametrize(
    ("caller", "group", "passing"),
    [
        ("carol", "default", 3),
        ("alice", "default", 5),
        ("alice", "bots", 5),
        ("carol", "bots", 1),
        ("free", "default", 20),
        ("free", "bots", 20),
        ("group:bots", "default", 3),
    ],
)
def test_a_caller_or_a_group_may_have_a_rate_of_its_own(caller: str, group: str, passing: int) -> None:
    of_callers = {"alice": Rate(6, 5), "group:bots": Rate(6, 1), "free": Rate(0, 1)}
    limits = RateLimiting(SLOW, of_callers, InMemoryRateLimiter())
    assert sum(passes(limits, call_of(caller, group)) for _ in range(20)) == passing


def test_callers_of_a_group_with_a_rate_are_counted_each_for_itself() -> None:
    limits = RateLimiting(SLOW, {"group:bots": Rate(6, 1)}, InMemoryRateLimiter())
    assert [passes(limits, call_of(name, "bots")) for name in ("a", "b", "a", "b")] == [True, True, False, False]


def test_so_many_callers_are_remembered_and_the_quiet_ones_forgotten_first() -> None:
    limits = RateLimiting(Rate(1, 1), {}, InMemoryRateLimiter(most=2))
    assert [passes(limits, call_of(name)) for name in ("a", "b", "a")] == [True, True, False]
    assert [passes(limits, call_of(name)) for name in ("c", "a", "b")] == [True, False, True]


@pytest.mark.parametrize(
    ("settings", "has_auth", "general"),
    [
        ({}, True, Rate(100, 20)),
        ({}, False, None),
        ({"rate_limit": 0}, True, None),
        ({"rate_limit": 30}, False, Rate(30, 20)),
        ({"rate_limit": 30, "rate_burst": 5}, True, Rate(30, 5)),
        ({"callers": {"alice": {"rate_limit": 5}}}, False, Rate(0, 20)),
        ({"callers": {"alice": {"rate_burst": 5}}}, False, None),
    ],
)
def test_there_are_limits_where_callers_authenticate_or_when_they_are_set(
    settings: dict[str, Any], has_auth: bool, general: Rate | None
) -> None:
    limits = limits_from_settings(load_settings(**settings), has_auth=has_auth)
    assert (None if limits is None else limits._general) == general


def test_what_is_not_set_for_a_caller_is_as_for_all() -> None:
    settings = load_settings(rate_limit=30, rate_burst=5, callers={"a": {"rate_limit": 7}, "b": {"rate_burst": 9}})
    limits = limits_from_settings(settings, has_auth=True)
    assert limits is not None
    assert limits._of_callers == {"key:a": Rate(7, 5), "key:b": Rate(30, 9)}


# In Redis.


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, timeout=PATIENCE)
    yield server
    server.stop()


@needs_redis
async def test_replicas_that_share_a_redis_count_together(redis: RedisServer) -> None:
    await redis.start()
    one, other = (RedisRateLimiter(redis.url, InMemoryRateLimiter()) for _ in range(2))
    waits = [await counts.acquire("alice", SLOW) for counts in (one, other, one, other, one)]
    assert waits[:3] == [0, 0, 0]
    assert all(0 < wait <= 10 for wait in waits[3:])
    assert await other.acquire("bob", SLOW) == 0
    assert await other.acquire("alice", Rate(60_000_000, 1)) == 0
    await asyncio.gather(one.close(), other.close())


@needs_redis
async def test_the_policy_awaits_what_redis_says(redis: RedisServer) -> None:
    await redis.start()
    settings = load_settings(rate_limit=6, rate_burst=3, redis_url=redis.url)
    limits = limits_from_settings(settings, has_auth=True)
    assert limits is not None
    stack, forwarded = PolicyStack([limits]), []

    async def forward(_: Any = None) -> dict[str, Any]:
        forwarded.append(True)
        return {}

    answers = await asyncio.gather(*(run(stack, call_of(), forward) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(answer, MCPError) for answer in answers) == 5
    assert len(forwarded) == 3
    await limits.close()


@needs_redis
async def test_while_redis_is_away_each_replica_counts_for_itself_and_then_together_again(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts = RedisRateLimiter(redis.url, InMemoryRateLimiter())
    assert [await counts.acquire("alice", SLOW) == 0 for _ in range(4)] == [True, True, True, False]
    assert caplog.text.count("connection to Redis lost") == 1
    await redis.start()
    monkeypatch.setattr(counts, "_retry_at", 0.0)
    assert await counts.acquire("alice", SLOW) == 0
    assert caplog.text.count("connection to Redis restored") == 1
    redis.stop()
    assert await counts.acquire("alice", SLOW) > 0
    await counts.close()


async def test_a_redis_that_hangs_holds_up_one_call_and_not_each() -> None:
    accepted = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    counts = RedisRateLimiter(f"redis://127.0.0.1:{port}/0?socket_timeout=0.05", InMemoryRateLimiter())
    assert [await counts.acquire("alice", SLOW) for _ in range(3)] == [0, 0, 0]
    await until(lambda: accepted)
    connections = len(accepted)
    assert await counts.acquire("alice", SLOW) > 0
    assert len(accepted) == connections
    await counts.close()
    server.close()


def test_an_address_that_is_not_of_a_redis_is_told_without_its_password() -> None:
    with pytest.raises(AggregatorError) as caught:
        limits_from_settings(load_settings(rate_limit=1, redis_url="http://:s3cret@h"), has_auth=True)
    assert "redis_url: must be like redis://" in str(caught.value)
    assert "s3cret" not in str(caught.value)
