"""What replicas say to each other, and what becomes of it when one of them, or Redis, is gone, silent or slow."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp.shared.exceptions import MCPError
from support.harness import PATIENCE, until
from support.redis_replica import Replica
from support.redis_server import RedisServer, needs_redis
from support.wire import until_answered

from fastmcp_aggregator.relay import remote_rounds
from fastmcp_aggregator.replicas.peers import PeerEvents, PeerLostError, Peers
from fastmcp_aggregator.replicas.redis_connection import RedisTimings, connect
from fastmcp_aggregator.replicas.rpc import TOO_LARGE

QUICK = RedisTimings(liveness_interval=0.05, backoff=(0.05,), key_interval=0.05)


@pytest_asyncio.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    server = RedisServer(tmp_path, timeout=3.0)
    await server.start()
    yield server
    server.stop()


@asynccontextmanager
async def two(redis: RedisServer, **timings: Any) -> AsyncIterator[tuple[Replica, Replica]]:
    async with AsyncExitStack() as stack:
        one, other = (Replica(redis.url, timings=replace(QUICK, **timings)) for _ in range(2))
        for replica in (one, other):
            await replica.start(stack)
        yield one, other


@pytest_asyncio.fixture
async def pair(redis: RedisServer) -> AsyncIterator[tuple[Replica, Replica]]:
    async with two(redis) as pair:
        yield pair


async def until_asked(redis: RedisServer, command: str, times: int) -> None:
    """Wait until Redis has been given a command so often."""
    client = connect(redis.url)
    await until_answered(
        lambda: client.info("commandstats"), lambda stats: stats.get(f"cmdstat_{command}", {}).get("calls", 0) >= times
    )
    await client.aclose()


Pair = tuple[Replica, Replica]
pytestmark = [needs_redis, pytest.mark.replicas]


async def test_an_answer_comes_after_its_parts_and_in_their_order(pair: Pair) -> None:
    one, other = pair
    answers = await asyncio.gather(*(one.ask(other, answer=number, parts=[*range(number)]) for number in range(20)))
    assert answers == [({"answer": n}, [{"part": part} for part in range(n)]) for n in range(20)]


async def test_an_asker_that_gives_up_ends_the_answering(pair: Pair) -> None:
    one, other = pair
    asking = asyncio.create_task(one.ask(other, waits=True))
    await other.asked.wait()
    asking.cancel()
    await asyncio.wait_for(other.given_up.wait(), PATIENCE)


async def test_an_answer_that_takes_longer_than_many_looks_is_waited_for(pair: Pair, redis: RedisServer) -> None:
    one, other = pair
    asking = asyncio.create_task(one.ask(other, waits=True, answer=1))
    await other.asked.wait()
    await until_asked(redis, "pubsub|numsub", 10)
    other.may_answer.set()
    assert (await asking)[0] == {"answer": 1}


async def test_a_replica_that_ends_while_it_is_asked_is_lost_and_one_that_has_ended_is_not_asked(pair: Pair) -> None:
    one, other = pair
    name = other.peers.id
    asking = asyncio.create_task(one.ask(other, waits=True))
    await other.asked.wait()
    other.peers.publish({"kind": "too late to be sent"})
    await other.stop()
    other.peers.publish({"kind": "later still"})
    with pytest.raises(PeerLostError):
        await asking
    assert other.given_up.is_set()
    assert other.peers.id == ""
    with pytest.raises(PeerLostError):
        await one.peers.request(name, {}, lambda part: None)
    with pytest.raises(PeerLostError):
        await other.peers.request(one.peers.id, {}, lambda part: None)
    one.peers.publish({"kind": "fence"})
    await until(lambda: not one.peers._notices)
    assert one.notices == []


async def test_who_listens_in_place_of_a_replica_keeps_nobody_waiting(pair: Pair, redis: RedisServer) -> None:
    one, other = pair
    name = other.peers.id
    client = connect(redis.url)
    channels = client.pubsub()
    await channels.subscribe(f"fastmcp-aggregator:0:to:{name}")
    await other.stop()
    with pytest.raises(PeerLostError):
        await asyncio.wait_for(one.peers.request(name, {}, lambda part: None), PATIENCE)
    await channels.aclose()  # type: ignore[no-untyped-call]
    await client.aclose()


async def test_when_redis_goes_the_questions_fail_and_their_answering_ends(pair: Pair, redis: RedisServer) -> None:
    one, other = pair
    asking = asyncio.create_task(one.ask(other, waits=True))
    await other.asked.wait()
    redis.stop()
    with pytest.raises(PeerLostError):
        await one.ask(other)  # before anybody has noticed
    with pytest.raises(PeerLostError):
        await asking
    await asyncio.wait_for(other.given_up.wait(), PATIENCE)


async def test_a_redis_that_hangs_is_given_up_and_found_again(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(redis, ping_after=0.05) as (one, other):
        await until_asked(redis, "ping", 6)
        assert one.peers.id
        assert "connection to Redis lost" not in caplog.text
        redis.pause()
        await until(lambda: not one.peers.id and not other.peers.id)
        one.peers.publish({"kind": "lost"})
        await until(lambda: one.peers._has_lost_some)
        redis.go_on()
        await until(lambda: one.peers.id and other.peers.id)
        await until(lambda: other.missed >= 2)  # by its own silence, and because the other says so
        assert {"kind": "lost"} not in other.notices
        assert caplog.text.count("connection to Redis lost") == 2
        assert caplog.text.count("connection to Redis restored") == 2


async def test_of_a_connection_that_is_ended_again_and_again_little_is_told(
    pair: Pair, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = pair
    client = connect(redis.url)
    for times in range(1, 9):
        await client.client_kill_filter(_type="pubsub")
        await until(lambda times=times: one.missed >= times and one.peers.id)
    assert caplog.text.count("connection to Redis lost") == 2 * 3
    assert caplog.text.count("connection to Redis restored") == 2 * 3
    await client.aclose()


async def test_a_connection_that_does_not_last_is_made_less_and_less_often(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def paused(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    client = connect(redis.url)
    async with AsyncExitStack() as stack:
        replica = Replica(redis.url)
        await replica.start(stack)
        monkeypatch.setattr("fastmcp_aggregator.replicas.redis_channel.asyncio.sleep", paused)
        for times in range(1, 7):
            await client.client_kill_filter(_type="pubsub")
            while replica.missed < times or not replica.peers.id:
                await sleep(0.001)
        monkeypatch.undo()
    assert pauses == [0.5, 1, 2, 5, 5, 5]
    await client.aclose()


async def test_what_floods_the_channels_leaves_turns_to_others(pair: Pair, redis: RedisServer) -> None:
    one, _ = pair
    client = connect(redis.url)
    turns: list[int] = []
    ignored = one.peers._channel

    async def look() -> None:
        while ignored._ignored < 500:
            turns.append(ignored._ignored)
            await asyncio.sleep(0)

    pipeline = client.pipeline(transaction=False)
    for _ in range(500):
        pipeline.publish(f"fastmcp-aggregator:0:to:{one.peers.id}", b"noise")
    await asyncio.gather(pipeline.execute(), look())
    assert max(after - before for before, after in itertools.pairwise([*turns, 500])) <= 3
    await client.aclose()


async def test_equal_notices_are_sent_once_and_not_to_oneself(pair: Pair) -> None:
    one, other = pair
    for notice in ({"kind": "a"}, {"kind": "b"}, {"kind": "a"}):
        one.peers.publish(notice)
    await until(lambda: len(other.notices) >= 2)
    other.peers.publish({"kind": "fence"})
    await until(lambda: one.notices)
    assert other.notices == [{"kind": "a"}, {"kind": "b"}]
    assert one.notices == [{"kind": "fence"}]
    assert (one.missed, other.missed) == (0, 0)


async def test_hubs_in_two_databases_do_not_hear_of_each_other(pair: Pair, redis: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        stranger = Replica(f"{redis.url}&db=1")
        await stranger.start(stack)
        stranger.peers.publish({"kind": "of a stranger"})
        with pytest.raises(PeerLostError):
            await stranger.ask(pair[0])
        pair[0].peers.publish({"kind": "fence"})
        await until(lambda: pair[1].notices)
        assert pair[1].notices == [{"kind": "fence"}]
        assert stranger.notices == []


async def test_the_key_is_the_same_for_all(pair: Pair) -> None:
    keys = await asyncio.gather(*(replica.peers.shared_key() for replica in pair))
    assert keys[0] == keys[1]
    assert len(keys[0] or b"") == 32


async def test_a_key_that_redis_has_lost_is_put_back_and_another_there_is_told_once(
    pair: Pair, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = pair
    key = await one.peers.shared_key()
    await other.peers.shared_key()
    client, name = connect(redis.url), "fastmcp-aggregator:request-state-key"
    await client.flushall()
    await until_answered(lambda: client.get(name), lambda found: found == key)
    assert caplog.text == ""
    await client.set(name, bytes(32))
    await until_asked(redis, "getrange", 20)
    assert caplog.text.count("Redis has another key for requestState than this replica") == 2
    await client.aclose()


async def test_more_than_may_wait_is_too_large(redis: RedisServer) -> None:
    async with two(redis, most_queued_bytes=200) as (one, other):
        answer, parts = await one.ask(other, answer="x" * 300, parts=["y" * 300])
    assert (answer, parts) == (TOO_LARGE, [])


async def test_a_question_that_cannot_be_answered_is_answered_all_the_same(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = pair
    assert await one.ask(other, fails=True) == ({}, [])
    assert "unhandled exception while a request of another replica was answered" in caplog.text
    with pytest.raises(MCPError, match="is over"):
        remote_rounds.result_from({})


async def test_alone_nobody_is_told_or_asked() -> None:
    alone = Peers()
    async with alone.open(PeerEvents(lambda notice: None, lambda: None, None)):  # type: ignore[arg-type]
        alone.publish({"kind": "a"})
        assert (alone.id, await alone.shared_key()) == ("", None)
        with pytest.raises(PeerLostError):
            await alone.request("0123456789abcdef", {}, lambda part: None)
