"""Instances for folders under attack: simultaneous clients, deaths, roots that flap, and the bound on instances."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.harness import config, connected, lean, talking, until
from support.memory import build_aggregator, scripted
from support.wire import RawClient

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.timings import Timings

ROOTS = {"roots": {"listChanged": True}}
CHANGED = "notifications/roots/list_changed"
ASK_FOR_ROOTS = {"ask": {"a": {"method": "roots/list"}}}


def tell(client: RawClient, *roots: str) -> None:
    client.on_question = lambda method, params: {"result": {"roots": [{"uri": root} for root in roots]}}


def hub(entry: dict[str, Any], **settings: Any) -> Aggregator:
    return build_aggregator(config(a=entry), **{"isolation": "directory", **settings})


def instances(app: Aggregator) -> list[Any]:
    runtime = app._backend.runtime
    assert runtime is not None
    return [instance for instance, _ in runtime.instances]


def assert_nothing_is_left(app: Aggregator) -> None:
    runtime = app._backend.runtime
    assert runtime is not None
    all_of, workspaces = runtime.instances, runtime.instances.workspaces
    assert not any((instances(app), workspaces._of, workspaces._at, workspaces._watched, all_of._holders, all_of._idle))
    assert not any((all_of._serving, all_of._given_up))
    assert not any(share.taken for share in all_of._shares.values())


async def test_many_clients_that_come_at_once_have_one_instance_for_each_folder() -> None:
    app = hub(lean(), max_isolated_sessions=5)
    scripts = scripted(app)
    async with app, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(app, folder=f"/{i % 5}")) for i in range(40)]
        found = await asyncio.gather(*(client.call("a:pid") for client in clients for _ in range(3)))
        pids = [each["pid"] for each in found]
        assert len(set(pids)) == 5
        assert all(pids[3 * i] == pids[3 * (i % 5)] for i in range(40))
        assert len(scripts["a"].lives) == 6
        await stack.aclose()
        await until(lambda: not instances(app))
        assert_nothing_is_left(app)


async def test_clients_whose_roots_flap_are_told_their_own_ones_and_leave_nothing_behind() -> None:
    chance = random.Random(7)
    app = hub(lean(asks_for_roots=True), max_isolated_sessions=20)
    async with app, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(app, folder="/a", capabilities=ROOTS)) for _ in range(8)]

        async def flap(client: RawClient) -> None:
            for _ in range(12):
                root = f"file:///{chance.randrange(4)}"
                tell(client, root)
                client.notify(CHANGED)
                for _ in range(chance.randrange(3)):
                    assert await client.call("a:roots") == {"roots": [{"uri": root}]}

        await asyncio.gather(*map(flap, clients))
        assert len(instances(app)) <= 4
        await stack.aclose()
        await until(lambda: not instances(app))
        assert_nothing_is_left(app)


async def test_a_client_that_leaves_while_it_is_asked_for_its_roots_leaves_nothing_behind() -> None:
    app = hub(lean())
    scripts = scripted(app)
    async with app:
        async with connected(app, folder="/a", capabilities=ROOTS) as client:
            client.begin("tools/call", {"name": "a:pid", "arguments": {}})
            await client.question("roots/list")
        await until(lambda: not instances(app))
        assert_nothing_is_left(app)
        assert len(scripts["a"].lives) == 1


async def test_a_server_that_is_removed_while_a_client_is_asked_for_its_roots_is_not_started_again() -> None:
    app = hub(lean())
    scripts = scripted(app)
    async with app, connected(app, folder="/a", capabilities=ROOTS) as client:
        _, response = client.begin("tools/call", {"name": "a:pid", "arguments": {}})
        asked = await client.question("roots/list")
        await app.reload(config(b=lean()))
        client.write({"id": asked["id"], "result": {"roots": [{"uri": "file:///x"}]}})
        assert "it was removed from the config" in (await response)["error"]["message"]
        assert len(scripts["a"].lives) == 1
        assert_nothing_is_left(app)


@pytest.mark.parametrize("answer", [{"error": {"code": -1, "message": "no"}}, {"result": {}}, {"result": {"roots": 1}}])
async def test_a_client_that_tells_no_roots_shares_with_those_of_its_folder_that_have_none(answer: Any) -> None:
    async with (
        hub(lean()) as app,
        connected(app, folder="/a", capabilities=ROOTS) as odd,
        connected(app, folder="/a") as bare,
    ):
        odd.on_question = lambda method, params: answer
        assert await odd.call("a:pid") == await bare.call("a:pid")


async def test_roots_that_are_no_roots_are_left_out() -> None:
    async with hub(talking()) as app, connected(app, folder="/a", capabilities=ROOTS) as client:
        listed = [{"uri": "file:///x"}, {"uri": 5}, {}, None, "file:///y", {"uri": "file:///z", "name": "Z"}]
        client.on_question = lambda method, params: {"result": {"roots": listed}}
        assert await client.play("a", ASK_FOR_ROOTS) == [{"a": {"roots": [listed[0], listed[-1]]}}]


async def test_instances_that_die_again_and_again_cost_no_other_folder_a_call() -> None:
    app = hub(lean())
    scripts = scripted(app, Timings(first_ceiling=0.0, last_ceiling=0.0, served_after=0.0))
    async with app, connected(app, folder="/a") as one, connected(app, folder="/b") as other:
        mine = await other.call("a:pid")
        await one.call("a:pid")
        for _ in range(20):
            life = next(life for life in scripts["a"].lives if life.folder == "/a" and life.code is None)
            life.die()
            assert await other.call("a:pid") == mine
            assert (await one.call("a:pid"))["pid"] != life.pid


async def test_an_instance_that_cannot_start_says_so_to_its_folder_and_ends_with_its_client() -> None:
    app = hub(lean(exit_if_file="/dev/null"), strict=False)
    async with app:
        async with connected(app, folder="/a") as client:
            error = await client.error("tools/call", {"name": "a:pid", "arguments": {}})
            assert "'a'" in error["message"] or "a:pid" in error["message"]
        await until(lambda: not instances(app))
        assert_nothing_is_left(app)


async def test_under_load_a_server_that_turns_out_to_ask_for_roots_tells_no_client_those_of_another() -> None:
    app = hub(talking(), isolation="auto", max_isolated_sessions=20)
    async with app, AsyncExitStack() as stack:
        clients = []
        for number in range(8):
            client = await stack.enter_async_context(connected(app, folder=f"/{number % 4}", capabilities=ROOTS))
            tell(client, f"file:///{number % 4}")
            clients.append(client)

        async def work(client: RawClient, own: str) -> list[Any]:
            told = []
            for step in range(10):
                script = [ASK_FOR_ROOTS] if step >= 3 else [{"say": "notifications/none"}]
                told += await client.play("a", *script)
            assert all(each == {"roots": [{"uri": own}]} for each in (x["a"] for x in told) if "roots" in each)
            return told

        told = await asyncio.gather(*(work(each, f"file:///{i % 4}") for i, each in enumerate(clients)))
        assert sum("roots" in x["a"] for each in told for x in each) >= 8 * 6
        assert len(instances(app)) == 4


@pytest.mark.parametrize("turns", range(6))
async def test_the_program_can_end_at_any_turn_while_an_instance_that_starts_is_being_closed(turns: int) -> None:
    app = hub(lean(), isolation="session")
    scripts = scripted(app)
    async with app:
        scripts["a"].options = {"silent": True}
        async with connected(app, folder="/a") as client:
            client.begin("tools/call", {"name": "a:pid", "arguments": {}})
            await until(lambda: len(scripts["a"].lives) == 2 and scripts["a"].life.received)
        for _ in range(turns):
            await asyncio.sleep(0)
    assert all(life.code is not None for life in scripts["a"].lives)
