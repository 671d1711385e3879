"""The children live as long as anybody uses the app, whoever came first."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from support.harness import briefly, config, lean, until

from fastmcp_aggregator import build_aggregator

pytestmark = pytest.mark.process


async def answers(client: Client[Any], name: str = "a:echo") -> bool:
    result = await client.call_tool(name, {"x": 1})
    return json.loads(result.content[0].text)["arguments"] == {"x": 1}  # type: ignore[union-attr]


@pytest.mark.parametrize("first_leaves_first", [True, False])
async def test_of_two_clients_either_may_leave_first(tmp_path: Path, first_leaves_first: bool) -> None:
    record = tmp_path / "pids"
    app = build_aggregator(config(a=lean(record=str(record))))
    first, second = AsyncExitStack(), AsyncExitStack()
    one = await first.enter_async_context(Client(app))
    other = await second.enter_async_context(Client(app))
    assert await answers(one)
    leaving, staying, client = (first, second, other) if first_leaves_first else (second, first, one)
    await leaving.aclose()
    assert await answers(client)
    await staying.aclose()
    assert app.health() == {}
    assert len(record.read_text().split()) == 1, "one process for all of them"


async def test_whoever_comes_between_two_leavings_finds_the_same_children(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    app = build_aggregator(config(a=lean(record=str(record))))
    first, second = AsyncExitStack(), AsyncExitStack()
    await first.enter_async_context(Client(app))
    await second.enter_async_context(Client(app))
    await first.aclose()
    async with Client(app) as third:
        await second.aclose()
        assert await answers(third)
    assert len(record.read_text().split()) == 1


async def test_whoever_comes_while_the_children_are_being_closed_gets_new_ones(tmp_path: Path) -> None:
    record, enough = tmp_path / "pids", asyncio.Event()
    app = briefly(build_aggregator(config(a=lean(record=str(record), ignore_eof=True))))

    async def use() -> None:
        async with app:
            await enough.wait()

    using = asyncio.create_task(use())
    await until(lambda: app.health() and app.health()["a"].state == "running")
    enough.set()
    await until(app._backend._life._changes.locked)
    async with Client(app) as client:
        assert using.done()
        assert await answers(client)
    assert len(record.read_text().split()) == 2


async def test_an_app_that_is_mounted_and_used_by_itself_lives_until_the_last_of_both_has_left(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    app = build_aggregator(config(a=lean(record=str(record))))
    parent: FastMCP[Any] = FastMCP("parent")
    parent.mount(app, namespace="hub")
    inside = AsyncExitStack()
    through_the_parent = await inside.enter_async_context(Client(parent))
    async with app:
        assert await answers(through_the_parent, "hub_a:echo")
        await inside.aclose()
        async with Client(app) as client:
            assert await answers(client)
    assert app.health() == {}
    assert len(record.read_text().split()) == 1
