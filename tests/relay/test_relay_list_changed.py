"""A child says that a list has changed: clients of both eras are told, whether there is a difference or not."""

from __future__ import annotations

import pytest
from support.harness import RawClient, config
from support.serving import served
from support.talking_server import talking_server

from fastmcp_aggregator import build_aggregator

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALL = {"toolsListChanged": True, "resourcesListChanged": True, "promptsListChanged": True}
KINDS = ("tools", "resources", "prompts")


async def listen(client: RawClient) -> None:
    """Have the client told of all list changes."""
    await client.result("tools/list")
    if client.is_modern:
        client.begin("subscriptions/listen", {"notifications": ALL})
        await client.heard("notifications/subscriptions/acknowledged")


def told(client: RawClient) -> list[str]:
    return [message["method"].split("/")[1] for message in client.notifications]


@pytest.mark.parametrize("era", ["legacy", "modern"], ids=["legacy child", "modern child"])
@pytest.mark.parametrize("modern", [False, True], ids=["legacy clients", "modern clients"])
@pytest.mark.parametrize("kind", KINDS)
async def test_all_clients_are_told_that_a_list_has_changed_though_it_is_as_before(
    era: str, modern: bool, kind: str
) -> None:
    async with talking_server(era=era) as server, served(build_aggregator(config(a=server.entry))) as front:
        clients = [await front.connect(modern=modern) for _ in range(2)]
        for client in clients:
            await listen(client)
        server.child.play_outside({"changed": kind})
        for client in clients:
            await client.heard(f"notifications/{kind}/list_changed")
        assert [told(client) for client in clients] == [[], []], "once, and of nothing else"


async def test_a_modern_client_is_told_only_of_what_it_wants_to_hear() -> None:
    async with talking_server() as server, served(build_aggregator(config(a=server.entry))) as front:
        client, other = await front.connect(modern=True), await front.connect()
        await listen(other)
        client.begin("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        await client.heard("notifications/subscriptions/acknowledged")
        server.child.play_outside({"changed": "tools"}, {"changed": "prompts"})
        await client.heard("notifications/prompts/list_changed")
        await other.heard("notifications/tools/list_changed")
        assert told(client) == []
