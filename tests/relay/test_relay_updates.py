"""Updates of an instance that is one principal's, or one client's: nobody else hears of them, at whatever address."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

import pytest
from mcp.server.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST
from support.doubles import subscribable_child

from fastmcp_aggregator.callers.fanout import Fanout
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.relay.subscriptions import Subscriptions

PUBLIC, ORIGINAL = "me://crm/who", "me://who"


def instance_of(principal: str) -> Any:
    return subscribable_child("crm", ("crm", principal))


@pytest.mark.parametrize("principals", [("alice", "bob"), (None, None)], ids=["principals", "clients"])
async def test_an_update_of_an_instance_reaches_the_streams_alone_that_have_subscribed_there(principals: Any) -> None:
    fanout = Fanout()
    clients = LiveClients(fanout)
    heard: dict[str, list[str]] = {"alice": [], "bob": []}

    async def publish(uri: str, streams: Collection[Hashable]) -> None:
        await clients.publish(ResourceUpdated(uri=uri), streams)

    subscriptions = Subscriptions(publish, fanout)
    instances = {who: instance_of(who) for who in heard}
    streams = {who: object() for who in heard}
    with (
        clients.listening(principals[0], streams["alice"]) as of_alice,
        clients.listening(principals[1], streams["bob"]) as of_bob,
    ):
        for who, handler, principal in zip(heard, (of_alice, of_bob), principals, strict=True):
            handler._bus.subscribe(lambda event, who=who: heard[who].append(event.uri))  # type: ignore[misc, union-attr]
            await subscriptions.subscribe(streams[who], instances[who], ORIGINAL, PUBLIC, principal)
        subscriptions.updated(instances["alice"], ORIGINAL)
        await fanout._sending  # type: ignore[misc]
        assert heard == {"alice": [PUBLIC], "bob": []}
    await subscriptions.close()


class Client:
    """A subscriber that counts how often it is looked up."""

    looks = 0

    def __hash__(self) -> int:
        self.looks += 1
        return id(self)


async def test_what_it_takes_to_subscribe_and_leave_does_not_grow_with_what_there_is() -> None:
    async def publish(uri: str, streams: Collection[Hashable]) -> None:
        """Nobody listens."""

    subscriptions, instance = Subscriptions(publish, Fanout()), instance_of("alice")

    async def looks() -> int:
        async with subscriptions.of_stream() as stream:
            await subscriptions.subscribe(stream, instance, ORIGINAL, PUBLIC, "alice")
        client = Client()
        await subscriptions.subscribe(client, instance, ORIGINAL, PUBLIC, "alice")
        await subscriptions.unsubscribe(client, PUBLIC)
        return client.looks

    few = await looks()
    for number in range(500):
        await subscriptions.subscribe(object(), instance, f"{ORIGINAL}/{number}", f"{PUBLIC}/{number}", "bob")
    assert await looks() == few
    await subscriptions.close()


async def test_an_address_that_is_left_is_left_wherever_it_led() -> None:
    async def publish(uri: str, streams: Collection[Hashable]) -> None:
        """Nobody listens."""

    subscriptions, instances = Subscriptions(publish, Fanout()), [instance_of("alice"), instance_of("bob")]
    client = object()
    for instance in instances:
        await subscriptions.subscribe(client, instance, ORIGINAL, PUBLIC)
    await subscriptions.subscribe(client, instances[0], f"{ORIGINAL}/other", f"{PUBLIC}/other")
    await subscriptions.unsubscribe(client, PUBLIC)
    assert [subscriptions.has_subscribers(instance) for instance in instances] == [True, False]
    await subscriptions.unsubscribe(client, f"{PUBLIC}/other")
    assert not any(subscriptions.resources.get(instance.instance_id) for instance in instances)
    await subscriptions.close()


async def test_a_client_has_so_many_subscriptions_at_most() -> None:
    async def publish(uri: str, streams: Collection[Hashable]) -> None:
        """Nobody listens."""

    subscriptions, instance = Subscriptions(publish, Fanout(), limit=2), instance_of("alice")
    client, other = object(), object()

    async def subscribe(who: object, name: str) -> None:
        await subscriptions.subscribe(who, instance, f"{ORIGINAL}/{name}", f"{PUBLIC}/{name}")

    for name in "ab":
        await subscribe(client, name)
    with pytest.raises(MCPError, match="a client can subscribe to at most 2 resources") as raised:
        await subscribe(client, "c")
    assert raised.value.error.code == INVALID_REQUEST
    await subscribe(other, "c")
    await subscriptions.unsubscribe(client, f"{PUBLIC}/a")
    await subscribe(client, "c")
    await subscriptions.close()


async def test_a_principal_has_so_many_streams_at_most() -> None:
    clients = LiveClients(Fanout(), most_streams=1)
    with (
        clients.listening("alice", object()),
        clients.listening("bob", object()),
        pytest.raises(MCPError, match="limit"),
        clients.listening("alice", object()),
    ):
        pass
    with clients.listening("alice", object()):
        pass


async def test_a_client_of_a_hub_is_told_alone_that_its_lists_are_others() -> None:
    clients, heard = LiveClients(Fanout()), list[str]()
    with clients.listening(None, object(), "one") as of_one, clients.listening(None, object(), "other") as of_other:
        for who, handler in (("one", of_one), ("other", of_other)):
            handler._bus.subscribe(lambda _, who=who: heard.append(who))  # type: ignore[misc]
        await clients.tell(None, frozenset({Kind.TOOL}), "one")
    assert heard == ["one"]
