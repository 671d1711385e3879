"""Real servers that belong to a folder or a client, used by two clients at once, with `isolation = "auto"`."""

from __future__ import annotations

from typing import Any

import pytest
from real_fronts import Entries
from real_servers import Place, requires_servers
from support.harness import RawClient, connected

from fastmcp_aggregator import build_aggregator

pytestmark = [pytest.mark.real, requires_servers]

ROOTS = {"roots": {"listChanged": True}}


def tell(client: RawClient, folder: Any) -> None:
    client.on_question = lambda method, params: {"result": {"roots": [{"uri": f"file://{folder}"}]}}


async def text(client: RawClient, tool: str, **arguments: Any) -> str:
    result = await client.result("tools/call", {"name": tool, "arguments": arguments})
    found: str = result["content"][0]["text"]
    return found


async def test_the_filesystem_server_lets_each_client_into_its_own_roots_alone(entries: Entries, place: Place) -> None:
    document = {"mcpServers": {"files": entries["filesystem"]}}
    app = build_aggregator(document, isolation="auto", catalogue="on")
    one, other = place.files, place.folder / "repository"
    async with (
        app,
        connected(app, folder=str(one), capabilities=ROOTS) as first,
        connected(app, folder=str(other), capabilities=ROOTS) as second,
    ):
        assert app.health()["files"].isolation_reason == "it asks for the roots of its client"
        tell(first, one)
        tell(second, other)
        for client, folder in ((first, one), (second, other)):
            assert await text(client, "files:list_allowed_directories") == f"Allowed directories:\n{folder}"
        hello = str(one / "hello.txt")
        assert await text(first, "files:read_text_file", path=hello) == "Hello, wörld\n"
        assert "Access denied" in await text(second, "files:read_text_file", path=hello)
        tell(second, one)
        second.notify("notifications/roots/list_changed")
        assert await text(second, "files:read_text_file", path=hello) == "Hello, wörld\n"
    assert app._backend._catalogues is not None
    assert app._backend._catalogues.flush(10)
    again = build_aggregator(document, isolation="auto", catalogue="on")
    async with again:
        assert again.health()["files"].isolation == "directory"


async def test_each_client_has_a_memory_server_of_its_own(entries: Entries) -> None:
    document = {"mcpServers": {"memory": entries["memory"]}}
    app = build_aggregator(document, isolation="auto", servers={"memory": {"stateful": True}})
    async with app, connected(app) as first, connected(app) as second:
        for client in (first, second):
            assert '"entities"' in await text(client, "memory:read_graph")
        runtime = app._backend.runtime
        assert runtime is not None
        assert len({instance.status().pid for instance, _ in runtime.instances}) == 2
