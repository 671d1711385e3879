"""Updates of an instance that is one principal's: nobody else hears of them, at whatever address."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable
from types import SimpleNamespace
from typing import Any

from mcp.server.subscriptions import ResourceUpdated

from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.relay.subscriptions import Subscriptions

PUBLIC, ORIGINAL = "me://crm/who", "me://who"


class Session:
    """One at a child that takes every subscription."""

    era = "legacy"
    lost = asyncio.Event()

    def serves(self, principal: Hashable) -> None:
        """Nothing depends on it here."""


def instance_of(principal: str) -> Any:
    session = Session()

    async def found() -> Session:
        return session

    async def request(*_: Any, **__: Any) -> dict[str, Any]:
        return {}

    return SimpleNamespace(key="crm", place=("crm", principal), calls=SimpleNamespace(session=found, request=request))


async def test_an_update_of_one_principals_instance_reaches_its_own_streams_alone() -> None:
    clients = LiveClients()
    heard: dict[str, list[str]] = {"alice": [], "bob": []}

    async def publish(uri: str, principals: Collection[Hashable]) -> None:
        await clients.publish(ResourceUpdated(uri=uri), principals)

    subscriptions = Subscriptions(publish)
    instances = {who: instance_of(who) for who in heard}
    with clients.listening("alice") as of_alice, clients.listening("bob") as of_bob:
        for who, handler in (("alice", of_alice), ("bob", of_bob)):
            handler._bus.subscribe(lambda event, who=who: heard[who].append(event.uri))  # type: ignore[misc, union-attr]
            await subscriptions.subscribe(object(), instances[who], ORIGINAL, PUBLIC, who)
        subscriptions.updated(instances["alice"], ORIGINAL)
        await asyncio.gather(*subscriptions._tasks)
        assert heard == {"alice": [PUBLIC], "bob": []}
    await subscriptions.close()
