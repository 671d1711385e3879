"""What is sent to many clients, by a clock that jumps: to a few in one turn of the loop, and principals in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.server.connection import Connection
from support.doubles import subscribable_child
from support.virtual_time import VirtualTimePolicy, now

from fastmcp_aggregator.callers.fanout import Fanout
from fastmcp_aggregator.callers.outbox import Outbox
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.relay.subscriptions import Subscriptions

ORIGINAL, PUBLIC = "note://x", "note://up/x"
AT_ONCE, A_SECOND = 20, 500


@pytest.fixture
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


class Crowd:
    """Connections of legacy clients, and what each is sent, and when."""

    def __init__(self, **bounds: int) -> None:
        self.fanout = Fanout(**bounds)
        self.clients = LiveClients(self.fanout)
        self.subscriptions = Subscriptions(self._nothing, self.fanout)
        self.sent: list[tuple[float, str, Connection, str]] = []
        self.child = subscribable_child("up", "up")

    async def join(self, who: str, count: int = 1) -> list[Connection]:
        """So many connections of a principal, each subscribed to the one resource."""
        joined = [self._connection(who) for _ in range(count)]
        for connection in joined:
            await self.subscriptions.subscribe(connection, self.child, ORIGINAL, PUBLIC, who)
        return joined

    def updated(self, uri: str = ORIGINAL) -> None:
        self.subscriptions.updated(self.child, uri)

    def told(self, who: str, since: float = 0.0) -> Counter[Connection]:
        return Counter(each for when, principal, each, _ in self.sent if principal == who and when >= since)

    def _connection(self, who: str) -> Connection:
        async def notify(method: str, params: Any, opts: Any = None) -> None:
            self.sent.append((now(), who, connection, (params or {}).get("uri", method)))

        outbound: Any = SimpleNamespace(notify=notify)
        connection = Connection.for_loop(outbound)
        connection.initialized.set()
        self.clients.add(SimpleNamespace(_connection=connection), who)  # type: ignore[arg-type]
        return connection

    async def _nothing(self, *_: Any) -> None: ...


async def flood(change: Callable[[], None], rate: int, seconds: float) -> None:
    for _ in range(int(rate * seconds)):
        change()
        await asyncio.sleep(1 / rate)


def busiest(crowd: Crowd, since: float = 0.0) -> int:
    """Messages that were sent in one moment, at most."""
    return max(Counter(when for when, *_ in crowd.sent if when >= since).values())


async def test_of_those_that_are_told_at_once_a_few_are_in_each_turn_of_the_loop() -> None:
    crowd, turns = Crowd(), list[int]()
    await crowd.join("alice", AT_ONCE)
    crowd.updated()
    while sum(turns) < AT_ONCE:
        before = len(crowd.sent)
        await asyncio.sleep(0)
        turns.append(len(crowd.sent) - before)
    assert max(turns) <= 4


@pytest.mark.parametrize("rate", [20, 200])
async def test_updates_for_many_sessions_of_one_caller_take_a_share_of_the_loop(rate: int) -> None:
    crowd = Crowd()
    alice = await crowd.join("alice", 300)
    await flood(crowd.updated, rate, 5)
    assert busiest(crowd) <= AT_ONCE
    assert busiest(crowd, since=0.1) <= 2, "in the long run one by one: the loop is for requests between them"
    assert len(crowd.sent) <= 5 * A_SECOND + AT_ONCE
    last = now()
    crowd.updated()
    await asyncio.sleep(2)
    assert set(crowd.told("alice", last)) == set(alice), "each is told after the last change"
    sent = len(crowd.sent)
    await asyncio.sleep(10)
    assert len(crowd.sent) == sent, "and no more"


async def test_changed_lists_for_many_sessions_take_the_same_share() -> None:
    crowd = Crowd()
    alice = await crowd.join("alice", 600)
    await flood(partial(crowd.clients.lists_changed, frozenset({Kind.TOOL})), 10, 5)
    assert busiest(crowd) <= AT_ONCE
    assert len(crowd.sent) <= 5 * A_SECOND + AT_ONCE
    last = now()
    crowd.clients.lists_changed(frozenset({Kind.TOOL}))
    await asyncio.sleep(4)
    assert set(crowd.told("alice", last)) == set(alice)
    await crowd.clients.close()


async def test_another_principal_is_told_in_its_turn() -> None:
    crowd = Crowd()
    await crowd.join("alice", 300)
    (bob,) = await crowd.join("bob")
    changes = asyncio.create_task(flood(lambda: [crowd.updated(f"{ORIGINAL}/{n}") for n in range(10)] and None, 20, 5))
    await asyncio.sleep(3)
    changed = now()
    crowd.updated(f"{ORIGINAL}/last")
    await asyncio.sleep(0.5)
    when = next(when for when, _, connection, uri in crowd.sent if connection is bob and uri == f"{PUBLIC}/last")
    assert when - changed < 0.5
    await changes


async def test_a_few_are_told_at_once() -> None:
    crowd = Crowd()
    await crowd.join("alice", AT_ONCE)
    began = now()
    crowd.updated()
    await asyncio.sleep(0.001)
    assert {when for when, *_ in crowd.sent} == {began}
    assert len(crowd.sent) == AT_ONCE


async def test_who_has_left_or_may_not_hear_when_the_turn_comes_is_not_told() -> None:
    crowd, may_hear = Crowd(), [True]
    await crowd.join("alice", AT_ONCE)
    left, barred = await crowd.join("alice", 2)
    await crowd.subscriptions.subscribe(barred, crowd.child, ORIGINAL, PUBLIC, "alice", may_hear=lambda: may_hear[0])
    crowd.updated()
    await asyncio.sleep(0.001)
    may_hear.clear()
    may_hear.append(False)
    await crowd.subscriptions.unsubscribe(left, PUBLIC)
    await asyncio.sleep(1)
    assert len(crowd.sent) == AT_ONCE


async def test_of_too_many_addresses_the_one_above_is_told() -> None:
    crowd = Crowd(most_waiting=3)
    await crowd.join("alice")
    for n in range(100):
        crowd.updated(f"{ORIGINAL}/{n}")
    await asyncio.sleep(1)
    assert [uri for *_, uri in crowd.sent] == [*(f"{PUBLIC}/{n}" for n in range(3)), PUBLIC]


async def test_a_message_that_waits_for_a_client_is_not_put_again() -> None:
    sent, reads = list[Hashable](), asyncio.Event()

    async def send(method: str, params: Any) -> None:
        await reads.wait()
        sent.append((method, params))

    outbox = Outbox(send)
    for _ in range(2000):
        outbox.put_once("updated", "a")
        outbox.put_once("list_changed")
        await asyncio.sleep(0)
    reads.set()
    await outbox.flush()
    # The first is under way when it changes again.
    assert sent == [("updated", {"uri": "a"}), ("list_changed", None), ("updated", {"uri": "a"})]


async def test_what_cannot_be_sent_to_one_client_is_sent_to_the_others() -> None:
    fanout, sent = Fanout(), list[str]()

    async def fails() -> None:
        raise RuntimeError("gone")

    async def arrives() -> None:
        sent.append("arrived")

    fanout.put("ann", "news", lambda: iter([fails, arrives]))
    fanout.put("ben", "news", lambda: iter([arrives]))
    await asyncio.sleep(1)
    assert sent == ["arrived", "arrived"]
    await fanout.close()
