"""Somebody who can write to Redis: what is not of a replica costs a line of the log, and nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from support.harness import PATIENCE, config, talking, until
from support.redis_replica import Replica
from support.redis_server import RedisServer, needs_redis
from support.serving import served
from support.wire import EVERYTHING

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.policies.limits import limits_from_settings
from fastmcp_aggregator.replicas.rate_limiter import InMemoryRateLimiter, Rate
from fastmcp_aggregator.replicas.redis_connection import connect
from fastmcp_aggregator.replicas.redis_peers import RedisPeers
from fastmcp_aggregator.replicas.redis_rate_limiter import RedisRateLimiter, _name
from fastmcp_aggregator.settings.model import load_settings

pytestmark = [needs_redis, pytest.mark.replicas]

KEY = "a secret that all replicas share, and no other"
SCOPE = "fastmcp-aggregator:0"
IGNORED = "ignored messages in Redis"


@pytest_asyncio.fixture
async def attacker(redis: RedisServer) -> AsyncIterator[Any]:
    client = connect(redis.url)
    yield client
    await client.aclose()


@pytest_asyncio.fixture
async def pair(
    redis: RedisServer, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[tuple[Replica, Replica]]:
    async with AsyncExitStack() as stack:
        one, other = Replica(redis.url, request.param), Replica(redis.url, request.param)
        for replica in (one, other):
            await replica.start(stack)
        caplog.clear()
        yield one, other


async def listened(attacker: Any, count: int, send: Any) -> list[tuple[bytes, bytes]]:
    """The messages that are sent meanwhile, with their channels."""
    ear = attacker.pubsub()
    await ear.psubscribe(f"{SCOPE}:*")
    await ear.get_message(timeout=PATIENCE)
    await send()
    found: list[tuple[bytes, bytes]] = []
    while len(found) < count:
        if message := await ear.get_message(timeout=PATIENCE):
            found.append((message["channel"], message["data"]))
    await ear.aclose()
    return found


async def goes_through(one: Replica, other: Replica) -> None:
    """Nothing else is left in the channels before this."""
    assert await one.ask(other, answer="echo") == ({"answer": "echo"}, [])
    other.questions.remove({"answer": "echo"})


FORGED: list[Any] = [
    {"notices": [{"kind": "files"}], "missed": True},
    {"ask": 1, "question": {"state": "x"}},
    {"part": 1, "of": {"method": "x", "params": {}}},
    {"reply": 1, "answer": {"result": {}}},
]


@pytest.mark.parametrize("pair", [KEY], indirect=True)
async def test_what_is_forged_replayed_cut_or_misdirected_costs_one_line(
    pair: tuple[Replica, Replica], attacker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = pair

    async def send() -> None:
        await goes_through(one, other)
        one.peers.publish({"kind": "lists", "server": "a"})
        await until(lambda: other.notices)

    sent = await listened(attacker, 3, send)
    assert other.notices == [{"kind": "lists", "server": "a"}]
    assert not any(b"echo" in data or b"lists" in data for _, data in sent)
    own, to_all = f"{SCOPE}:to:{other.peers.id}", f"{SCOPE}:to:all"
    for channel in (own, to_all):
        for _, data in sent:  # replayed, cut, changed
            for changed in (data, data[:-1], data[:20], data[:-1] + bytes([data[-1] ^ 1]), b"", data * 2):
                await attacker.publish(channel, changed)
        for forged in FORGED:
            for sender in (one.peers.id, secrets.token_hex(8)):
                await attacker.publish(channel, json.dumps({"from": sender, **forged}))
        for _ in range(100):
            await attacker.publish(channel, secrets.token_bytes(200))
    await goes_through(one, other)
    await goes_through(other, one)
    assert other.notices == [{"kind": "lists", "server": "a"}]
    assert one.notices == one.questions == other.questions == []
    assert (one.missed, other.missed) == (0, 0)
    records = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(records) == 2  # one of each replica
    assert all(IGNORED in record for record in records)


MALFORMED: list[Any] = [
    *([], 1, None, "x", {}, {"from": 1}, {"from": "x"}, {"from": ["11" * 8]}),
    *({"notices": 5}, {"notices": {"a": 1}}, {"notices": [1]}, {"notices": None, "missed": True}),
    *({"ask": "1"}, {"ask": 1}, {"ask": 1, "question": 5}, {"ask": 1, "question": {"no": 1}}, {"ask": [1]}),
    *({"part": 1}, {"part": 1, "of": 5}, {"reply": 1}, {"reply": 1, "answer": 5}, {"cancel": {}}, {"reply": {}}),
]


@pytest.mark.parametrize("pair", [None], indirect=True)
async def test_without_a_key_what_has_the_wrong_shape_costs_one_line_too(
    pair: tuple[Replica, Replica], attacker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = pair
    waiting = asyncio.create_task(one.peers.request(other.peers.id, {"answer": 1}, lambda part: part["method"]))
    for recipient in (other.peers.id, one.peers.id, "all"):
        for malformed in MALFORMED:
            message = {"from": "11" * 8, **malformed} if isinstance(malformed, dict) else malformed
            await attacker.publish(f"{SCOPE}:to:{recipient}", json.dumps(message))
        await attacker.publish(f"{SCOPE}:to:{recipient}", b"[" * 100_000)
        await attacker.publish(f"{SCOPE}:to:{recipient}", b"\xff")
    assert await waiting == {"answer": 1}
    other.questions.remove({"answer": 1})
    await goes_through(one, other)
    await goes_through(other, one)
    assert one.notices == other.notices == []
    assert all(question == {"no": 1} for question in one.questions + other.questions)
    records = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(records) == 2
    assert all(IGNORED in record for record in records)


async def test_that_redis_is_trusted_is_said_once_unless_there_is_a_key(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for secret, said in ((KEY, 0), (None, 1)):
        replica = Replica(redis.url, secret)
        async with AsyncExitStack() as stack:
            await replica.start(stack)
        assert caplog.text.count("is trusted: anyone who can write to it can act as this hub; set redis_key") == said


async def test_a_replica_with_another_key_is_not_heard(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    one, other, stranger = Replica(redis.url, KEY), Replica(redis.url, KEY), Replica(redis.url, KEY + "!")
    async with AsyncExitStack() as stack:
        for replica in (one, other, stranger):
            await replica.start(stack)
        stranger.peers.publish({"kind": "files"})
        await until(lambda: IGNORED in caplog.text)
        one.peers.publish({"kind": "lists", "server": "a"})
        await until(lambda: other.notices)
        assert (one.notices, other.notices, stranger.notices) == ([], [{"kind": "lists", "server": "a"}], [])


async def test_the_key_of_states_is_not_in_redis_if_there_is_another(redis: RedisServer, attacker: Any) -> None:
    keys = [await RedisPeers(redis.url, secret).shared_key() for secret in (KEY, KEY, KEY + "!")]
    assert keys[0] == keys[1] != keys[2]
    assert await attacker.keys("*") == []


@pytest.mark.parametrize("value", [b"", b"short", b"x" * 33, ["a", "list"]])
async def test_a_key_in_redis_that_is_none_is_left_alone(
    value: Any, redis: RedisServer, attacker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = "fastmcp-aggregator:request-state-key"
    await (attacker.rpush(name, *value) if isinstance(value, list) else attacker.set(name, value))
    peers = RedisPeers(redis.url)
    assert await peers.shared_key() is None
    assert f"{name} in Redis is not a sealing key" in caplog.text
    await peers._channel.redis.aclose()


BUCKETS: list[Any] = [
    b"a string",
    {"tokens": "nan", "at": "0"},
    {"tokens": "inf", "at": "0"},
    {"tokens": "1e9", "at": "1"},
    {"tokens": "-1e9", "at": "1"},
    {"tokens": "x", "at": "y"},
    {"tokens": "0", "at": "1e300"},
    {"at": "1"},
]


@pytest.mark.parametrize("bucket", BUCKETS)
async def test_a_bucket_that_is_forged_gives_nobody_more_than_a_replica_does(
    bucket: Any, redis: RedisServer, attacker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rate = Rate(6, 3)
    limiter, name = RedisRateLimiter(redis.url, InMemoryRateLimiter()), _name("ann", rate)
    waits = []
    for _ in range(20):
        await attacker.delete(name)
        await (attacker.set(name, bucket) if isinstance(bucket, bytes) else attacker.hset(name, mapping=bucket))
        waits.append(await limiter.acquire("ann", rate))
    assert waits[:3] == [0, 0, 0]
    assert sum(wait == 0 for wait in waits) <= 4
    assert all(wait <= 10 for wait in waits)
    assert await limiter.acquire("bob", rate) == 0
    assert len(caplog.records) == isinstance(bucket, bytes)
    await limiter.close()


async def test_with_a_key_nobody_else_takes_calls_from_a_caller(
    redis: RedisServer, attacker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rate = Rate(6, 3)
    limiter = RedisRateLimiter(redis.url, InMemoryRateLimiter(), KEY)
    assert await limiter.acquire("ann", rate) == 0
    ((name, ours),) = [(name, await attacker.get(name)) for name in await attacker.keys("*:calls:*")]
    _, then, mac = ours.split()
    forged = [b"0.000000 %b %b" % (then, mac), b"0 0 0", b"0.000000 1e300", b"nan nan", b"x" * 1_000_000]
    for bucket in (*forged, {"tokens": "0", "at": "9999999999"}):
        await attacker.delete(name)
        await (attacker.set(name, bucket) if isinstance(bucket, bytes) else attacker.hset(name, mapping=bucket))
        limiter._own = InMemoryRateLimiter()
        assert await limiter.acquire("ann", rate) == 0, bucket
    assert [record.message for record in caplog.records] == [
        "a rate limit in Redis is none of ours; it is counted by each replica alone"
    ]
    await limiter.close()


@pytest.mark.parametrize("secret", [None, KEY], ids=["without a key", "with a key"])
async def test_who_deletes_a_bucket_and_then_spoils_it_gives_nobody_both(
    secret: str | None, redis: RedisServer, attacker: Any
) -> None:
    rate = Rate(6, 3)
    limiter = RedisRateLimiter(redis.url, InMemoryRateLimiter(), secret)
    waits = []
    for number in range(20):
        for name in await attacker.keys("*:calls:*"):
            await attacker.delete(name)
            if number >= 10:
                await (attacker.hset(name, "x", "y") if secret else attacker.set(name, b"x"))
        waits.append(await limiter.acquire("ann", rate))
    assert sum(wait == 0 for wait in waits) <= 4
    await limiter.close()


async def test_a_bucket_of_a_clock_that_was_set_back_takes_no_calls(redis: RedisServer, attacker: Any) -> None:
    rate = Rate(6, 3)
    limiter = RedisRateLimiter(redis.url, InMemoryRateLimiter(), KEY)
    name = _name("ann", rate, limiter._key)
    await attacker.set(name, limiter._authenticated(name, 0.0, time.time() + 3600))
    assert await limiter.acquire("ann", rate) == 0
    await limiter.close()


async def test_calls_of_a_caller_do_not_wait_for_each_other_at_a_slow_redis(redis: RedisServer) -> None:
    rate = Rate(6, 3)
    limiter = RedisRateLimiter(redis.url, InMemoryRateLimiter(), KEY)
    limiter.longest_wait = 0.0
    async with limiter._lock_of(_name("ann", rate, limiter._key)):
        assert [await limiter.acquire("ann", rate) == 0 for _ in range(4)] == [True, True, True, False]
    await limiter.close()


async def test_with_a_key_replicas_count_together_whatever_comes_at_once(redis: RedisServer) -> None:
    rate = Rate(6, 20)
    replicas = [RedisRateLimiter(redis.url, InMemoryRateLimiter(), KEY) for _ in range(3)]
    waits = await asyncio.gather(*(each.acquire("ann", rate) for _ in range(15) for each in replicas))
    assert sum(wait == 0 for wait in waits) == 20
    assert all(wait <= 10 for wait in waits)
    other = RedisRateLimiter(redis.url, InMemoryRateLimiter(), KEY[::-1])
    assert await other.acquire("ann", rate) == 0, "replicas with another key are another hub"
    await asyncio.gather(*(each.close() for each in (*replicas, other)))


async def test_hubs_with_a_key_hand_calls_over_and_count_together(redis: RedisServer) -> None:
    options: dict[str, Any] = {"redis_url": redis.url, "redis_key": KEY}
    async with AsyncExitStack() as stack:
        one, other = [
            await (await stack.enter_async_context(served(build_aggregator(config(old=talking()), **options)))).connect(
                modern=True, capabilities=EVERYTHING
            )
            for _ in range(2)
        ]
        params = {"name": "old:play", "arguments": {"script": [{"ask": {"a": {"method": "roots/list"}}}]}}
        first = await one.result("tools/call", params)
        answers = {name: {"roots": []} for name in first["inputRequests"]}
        again = {**params, "requestState": first["requestState"], "inputResponses": answers}
        assert (await other.result("tools/call", again))["resultType"] == "complete"


def test_a_key_that_is_too_short_is_refused() -> None:
    with pytest.raises(Exception, match="must have at least 32 characters; `openssl rand -base64 32` makes one"):
        limits_from_settings(load_settings(redis_key="short"), has_auth=True)
