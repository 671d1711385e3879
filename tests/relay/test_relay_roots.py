"""That the roots of a client have changed: told to the children where there is one client, and to nobody elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from support.harness import RawClient, config
from support.serving import served
from support.talking_server import talking_server

from fastmcp_aggregator import build_aggregator

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHANGED = "notifications/roots/list_changed"


def times_told(report: dict[str, Any]) -> int:
    return sum(method == CHANGED for method, _ in report["notifications"])


@pytest.mark.process
@pytest.mark.parametrize("server", ["old", "old-http"])
async def test_on_stdio_a_legacy_child_is_told_and_can_ask_for_the_new_ones(fronts: Any, server: str) -> None:
    client: RawClient = fronts.on_stdio(modern=False)
    client.forget()
    before = times_told(await client.report(server))
    client.notify(CHANGED)
    await client.report(server, lambda report: times_told(report) == before + 1)
    client.on_question = lambda method, params: {"result": {"roots": [{"uri": "file:///new"}]}}
    brought = await client.play(server, {"ask": {"a": {"method": "roots/list"}}})
    assert brought == [{"a": {"roots": [{"uri": "file:///new"}]}}]


@pytest.mark.process
@pytest.mark.parametrize("server", ["new", "new-http"])
async def test_on_stdio_a_modern_child_is_not_told_since_it_is_given_the_roots_when_it_asks(
    fronts: Any, server: str
) -> None:
    client: RawClient = fronts.on_stdio(modern=False)
    before = times_told(await client.report("old"))
    client.notify(CHANGED)
    await client.report("old", lambda report: times_told(report) == before + 1)
    assert times_told(await client.report(server)) == 0


async def test_over_http_no_child_is_told_since_the_roots_are_of_one_client_among_many() -> None:
    async with talking_server() as server, served(build_aggregator(config(a=server.entry))) as front:
        client = await front.connect(capabilities={"roots": {"listChanged": True}})
        client.notify(CHANGED)
        await client.posted()
        await client.report("a")
        assert [method for method, _ in server.child.notifications] == ["notifications/initialized"]
