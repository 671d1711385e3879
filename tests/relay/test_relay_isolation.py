"""`isolation = "auto"` and `"directory"`: which instance a client has, when it has another, and when that ends."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import PATIENCE, RawClient, config, connected, lean, talking, timed, until
from support.memory import QUICK, build_aggregator, scripted
from support.serving import served
from support.wire import LEGACY

import fastmcp_aggregator
from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.groups import Group

ROOTS = {"roots": {"listChanged": True}}
ASK_FOR_ROOTS = {"ask": {"a": {"method": "roots/list"}}}
CHANGED = "notifications/roots/list_changed"


def hub(entry: dict[str, Any], *, isolation: str = "auto", **settings: Any) -> Aggregator:
    return build_aggregator(config(a=entry), isolation=isolation, **settings)


@asynccontextmanager
async def working_in(app: Aggregator, folder: str | None, *roots: str, **options: Any) -> AsyncIterator[RawClient]:
    """A client in a folder; with roots, it tells these."""
    declared = ROOTS if roots else None
    async with connected(app, folder=folder, capabilities=declared, **options) as client:
        tell(client, *roots)
        yield client


def tell(client: RawClient, *roots: str) -> None:
    client.on_question = lambda method, params: {"result": {"roots": [{"uri": root} for root in roots]}}


async def pid(client: RawClient) -> int:
    found: int = (await client.call("a:pid"))["pid"]
    return found


def instances(app: Aggregator) -> list[Any]:
    runtime = app._backend.runtime
    assert runtime is not None
    return [instance for instance, _ in runtime.instances]


async def test_clients_in_one_folder_share_an_instance_and_others_have_another() -> None:
    async with (
        hub(lean(), isolation="directory") as app,
        working_in(app, "/a") as one,
        working_in(app, "/a", modern=True) as same,
        working_in(app, "/b") as other,
    ):
        found = await asyncio.gather(*(pid(client) for client in (one, same, other, one, same, other)))
        assert found[0] == found[1] == found[3] == found[4]
        assert found[2] == found[5] != found[0]
        assert [instance.server.cwd for instance in instances(app)] == ["/a", "/b"]


async def test_clients_with_the_same_roots_share_in_whatever_order_they_name_them() -> None:
    async with (
        hub(talking(), isolation="directory") as app,
        working_in(app, "/a", "file:///x", "file:///y") as one,
        working_in(app, "/a", "file:///y", "file:///x") as same,
        working_in(app, "/a", "file:///x") as fewer,
        working_in(app, "/a") as none,
    ):
        found = [await pid(client) for client in (one, same, fewer, none)]
        assert found[0] == found[1]
        assert len(set(found)) == 3


async def test_where_no_folder_is_known_roots_decide_and_else_the_session() -> None:
    async with hub(talking(), isolation="directory") as app, served(app) as front:
        one, same = [await front.connect(capabilities=ROOTS) for _ in range(2)]
        for client in (one, same):
            tell(client, "file:///x")
        bare, empty = await front.connect(), await front.connect(capabilities=ROOTS)
        tell(empty)
        found = [await pid(client) for client in (one, same, bare, empty)]
        assert found[0] == found[1]
        assert len(set(found)) == 3


async def test_an_instance_is_told_the_roots_of_its_clients_and_no_others() -> None:
    async with (
        hub(talking(), isolation="directory") as app,
        working_in(app, "/a", "file:///a") as one,
        working_in(app, "/b", "file:///b") as other,
        working_in(app, "/b") as bare,
    ):
        for client, root in ((one, "file:///a"), (other, "file:///b")):
            assert await client.play("a", ASK_FOR_ROOTS) == [{"a": {"roots": [{"uri": root}]}}]
        answer = (await bare.play("a", ASK_FOR_ROOTS))[0]["a"]
        assert "told the roots of none" in str(answer)


async def test_a_client_whose_roots_change_has_another_instance_from_its_next_call_on_and_the_old_one_ends() -> None:
    async with (
        hub(talking(), isolation="directory") as app,
        working_in(app, "/a", "file:///x") as one,
        working_in(app, "/a", "file:///x") as stays,
    ):
        before = await pid(one), await pid(stays)
        assert before[0] == before[1]
        tell(one, "file:///y")
        one.notify(CHANGED)
        moved = await pid(one)
        assert moved != before[0]
        assert await one.play("a", ASK_FOR_ROOTS) == [{"a": {"roots": [{"uri": "file:///y"}]}}]
        assert await pid(stays) == before[0]
        tell(one, "file:///x")
        one.notify(CHANGED)
        assert await pid(one) == before[0]
        await until(lambda: len(instances(app)) == 1)


@pytest.mark.parametrize("modern", [False, True])
async def test_an_instance_ends_when_the_last_of_its_clients_leaves(modern: bool) -> None:
    async with hub(lean(), isolation="directory") as app:
        async with working_in(app, "/a", modern=modern) as one:
            async with working_in(app, "/a", modern=modern) as two:
                assert await pid(one) == await pid(two)
            assert await pid(one)
            assert len(instances(app)) == 1
        await until(lambda: not instances(app))
        assert app._backend.runtime is not None
        assert not app._backend.runtime.instances.workspaces._of


async def test_what_is_in_flight_when_the_roots_change_is_answered_by_the_old_instance() -> None:
    async with hub(talking(), isolation="directory") as app, working_in(app, "/a", "file:///x") as client:
        before = await pid(client)
        waiting = asyncio.ensure_future(client.play("a", {"wait": "gate"}, ASK_FOR_ROOTS))
        (old,) = instances(app)
        await until(lambda: old.calls.in_flight)
        tell(client, "file:///y")
        client.notify(CHANGED)
        assert await pid(client) != before
        assert len(instances(app)) == 2
        await old.calls.request("tools/call", {"name": "open", "arguments": {"gate": "gate"}})
        assert (await waiting)[-1] == {"a": {"roots": [{"uri": "file:///x"}]}}
        await until(lambda: len(instances(app)) == 1)


async def test_too_many_folders_are_told_so_and_a_place_is_free_when_one_ends() -> None:
    async with hub(lean(), isolation="directory", max_isolated_sessions=1) as app, working_in(app, "/b") as second:
        async with working_in(app, "/a") as first, working_in(app, "/a") as same:
            assert await pid(first) == await pid(same)
            error = await second.error("tools/call", {"name": "a:pid", "arguments": {}})
            assert "'a'" in error["message"]
            assert "raise `max_isolated_sessions`" in error["message"]
        await until(lambda: not instances(app))
        assert await pid(second)


# Automatically.


async def test_under_auto_a_server_is_shared_until_it_asks_for_roots_which_it_is_not_told_then() -> None:
    async with (
        hub(talking()) as app,
        working_in(app, "/a", "file:///a") as one,
        working_in(app, "/b", "file:///b") as other,
    ):
        assert await pid(one) == await pid(other)
        assert app.health()["a"].isolation == "shared"
        answer = (await one.play("a", ASK_FOR_ROOTS))[0]["a"]
        assert "told the roots of none" in str(answer)
        assert app.health()["a"].isolation == "directory"
        assert app.health()["a"].isolation_reason == "it asks for the roots of its client"
        for client, root in ((one, "file:///a"), (other, "file:///b")):
            assert await client.play("a", ASK_FOR_ROOTS) == [{"a": {"roots": [{"uri": root}]}}]
        assert await pid(one) != await pid(other)
        assert app.health()["a"].instances == 2


async def test_what_is_in_flight_on_the_shared_instance_meanwhile_is_answered_there() -> None:
    async with hub(talking()) as app, working_in(app, "/a", "file:///a") as one, working_in(app, "/b") as other:
        waiting = asyncio.ensure_future(other.play("a", {"wait": "gate"}, {"say": "notifications/none"}))
        child = app.children["a"]
        await until(lambda: child.calls.in_flight)
        await one.play("a", ASK_FOR_ROOTS)
        assert not child.evidence.is_shared
        assert await pid(other) != child.status().pid
        await child.calls.request("tools/call", {"name": "open", "arguments": {"gate": "gate"}})
        await waiting


async def test_a_server_that_keeps_state_has_an_instance_for_each_client_in_the_clients_folder() -> None:
    entry = lean()
    async with (
        hub(entry, servers={"a": {"stateful": True}}) as app,
        working_in(app, "/a") as one,
        working_in(app, "/a") as other,
    ):
        assert await pid(one) != await pid(other)
        assert [instance.server.cwd for instance in instances(app)] == ["/a", "/a"]


@pytest.mark.parametrize("is_on_stdio", [False, True])
async def test_what_a_server_has_shown_counts_from_the_next_start_on(is_on_stdio: bool) -> None:
    first = hub(talking(), catalogue="on", isolation="shared" if is_on_stdio else "auto")
    timed(first, replace(QUICK, client_timeout=0.01))
    if is_on_stdio:
        first._backend.profile.expect_one()
    async with first, working_in(first, "/a", "file:///a") as client:
        await client.play("a", ASK_FOR_ROOTS)
    assert first._backend._catalogues is not None
    assert first._backend._catalogues.flush(PATIENCE)
    async with hub(talking(), catalogue="on") as app, working_in(app, "/a") as one, working_in(app, "/b") as other:
        assert app.health()["a"].isolation == "directory"
        assert await pid(one) != await pid(other)


@pytest.mark.parametrize("isolation", ["shared", "directory"])
async def test_a_server_of_both_eras_that_sleeps_is_started_in_that_of_the_client_if_that_can_be_asked(
    isolation: str,
) -> None:
    settings: dict[str, Any] = {"isolation": isolation, "start": "on_demand", "catalogue": "on"}
    first = hub(talking(era="both"), **settings)
    async with first, working_in(first, "/a") as client:
        await client.names()
    assert first._backend._catalogues is not None
    assert first._backend._catalogues.flush(10)
    app = hub(talking(era="both"), **settings)
    lives = scripted(app)["a"].lives
    async with app, working_in(app, "/a", "file:///a") as client:
        assert app.health()["a"].state == "sleeping"
        assert (await client.call("a:report"))["client"]["protocolVersion"] == LEGACY
        assert app.health()["a"].state == "sleeping"
        assert len(lives) == 1
        lives[0].die()
        assert (await client.call("a:report"))["client"]["protocolVersion"] == LEGACY


async def test_what_runs_for_clients_of_the_older_era_stops_when_nobody_uses_it_as_the_server_itself() -> None:
    async with (
        hub(talking(era="both"), start="on_demand", idle_timeout=0.05) as app,
        working_in(app, "/a", "file:///a") as client,
    ):
        for _ in range(2):
            assert (await client.call("a:report"))["client"]["protocolVersion"] == LEGACY
            assert len(instances(app)) == 1
            await until(lambda: not instances(app) and app.health()["a"].state == "sleeping")


async def test_a_server_that_asks_for_roots_when_it_starts_is_told_those_of_each_folder_from_the_first_call_on() -> (
    None
):
    async with (
        hub(lean(asks_for_roots=True)) as app,
        working_in(app, "/a", "file:///a") as one,
        working_in(app, "/b", "file:///b") as other,
    ):
        found = await asyncio.gather(*(client.call("a:roots") for client in (one, other)))
        assert found == [{"roots": [{"uri": "file:///a"}]}, {"roots": [{"uri": "file:///b"}]}]


async def test_a_server_that_lists_by_capability_is_known_by_its_catalogues_and_then_each_client_has_its_own() -> None:
    entry = lean(tools_if={"sampling": "think"})
    settings: dict[str, Any] = {"catalogue": "on", "isolation": "auto"}
    for declared in ({}, {"sampling": {}}):
        alone = build_aggregator(config(a=entry), **settings)
        alone._backend.profile.expect_one()  # as on stdio
        async with connected(alone, capabilities=declared) as client:
            assert ("a:think" in await client.names()) == bool(declared)
        assert alone._backend._catalogues is not None
        assert alone._backend._catalogues.flush(PATIENCE)
    async with hub(entry, catalogue="on") as app, working_in(app, "/a") as one, working_in(app, "/a") as other:
        assert app.health()["a"].isolation_reason == "what it lists depends on what its client can do"
        assert await pid(one) != await pid(other)


async def test_an_instance_that_died_is_replaced_for_its_folder_alone() -> None:
    app = hub(lean(), isolation="directory")
    lives = scripted(app)
    async with app, working_in(app, "/a") as one, working_in(app, "/b") as other:
        before = await pid(one), await pid(other)
        next(life for life in lives["a"].lives if life.pid == before[0]).die()
        assert await pid(one) not in before
        assert await pid(other) == before[1]
        assert {life.folder for life in lives["a"].lives} == {None, "/a", "/b"}


@pytest.mark.parametrize("isolation", ["directory", "session"])
async def test_the_variables_for_the_working_folder_are_those_of_the_client(isolation: str) -> None:
    entry = lean()
    entry["env"] = {"ROOT": "${workspaceFolder}/data"}
    async with hub(entry, isolation=isolation) as app, working_in(app, "/a") as one, working_in(app, "/b") as other:
        await asyncio.gather(pid(one), pid(other))
        assert [each.server.environment()["ROOT"] for each in instances(app)] == ["/a/data", "/b/data"]


@pytest.mark.process
async def test_a_process_runs_in_the_folder_of_its_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.chdir(tmp_path)
    app = fastmcp_aggregator.build_aggregator(config(a=lean(record="pids")), isolation="directory")
    async with (
        app,
        working_in(app, str(folders[0])) as one,
        working_in(app, str(folders[0]), modern=True) as same,
        working_in(app, str(folders[1])) as other,
    ):
        found = await asyncio.gather(*map(pid, (one, same, other)))
        assert [(folder / "pids").read_text().split() for folder in folders] == [[str(found[0])], [str(found[2])]]
        assert found[0] == found[1]
        assert (tmp_path / "pids").read_text().split() == [str(app.health()["a"].pid)]


@pytest.mark.process
async def test_a_folder_that_is_not_there_is_named_as_the_reason(tmp_path: Path) -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), isolation="directory")
    async with app, working_in(app, str(tmp_path / "gone")) as client:
        error = await client.error("tools/call", {"name": "a:pid", "arguments": {}})
        assert "its working directory (`cwd`) does not exist" in error["message"]


async def test_a_client_whose_roots_have_changed_still_hears_of_what_it_has_subscribed_to_before() -> None:
    async with hub(talking(), isolation="directory") as app:
        async with working_in(app, "/a", "file:///x") as client:
            await client.result("resources/subscribe", {"uri": "note://a//a"})
            (old,) = instances(app)
            tell(client, "file:///y")
            client.notify(CHANGED)
            await pid(client)
            assert len(instances(app)) == 2
            await old.calls.request("tools/call", {"name": "play", "arguments": {"script": [{"update": "note:///a"}]}})
            assert (await client.heard("notifications/resources/updated"))["params"] == {"uri": "note://a//a"}
        await until(lambda: not instances(app))


async def test_an_instance_logs_at_the_most_verbose_level_of_its_clients_and_no_others() -> None:
    async with (
        hub(talking(), isolation="directory") as app,
        working_in(app, "/a") as quiet,
        working_in(app, "/a") as verbose,
        working_in(app, "/b") as other,
    ):
        for client, level in ((quiet, "error"), (verbose, "info"), (other, "debug")):
            await client.result("logging/setLevel", {"level": level})

        async def levels(client: RawClient) -> list[str]:
            asked = (await client.call("a:report"))["requests"]
            return [params["level"] for method, params in asked if method == "logging/setLevel"]

        async def settled(client: RawClient, level: str) -> None:
            while not (found := await levels(client)) or found[-1] != level:
                await asyncio.sleep(0)

        for client, level in ((quiet, "error"), (other, "debug"), (verbose, "info")):
            await asyncio.wait_for(settled(client, level), PATIENCE)
        assert "debug" not in await levels(quiet)


async def test_users_who_name_the_same_roots_do_not_share() -> None:
    tokens = {name: {"client_id": name, "scopes": []} for name in ("ann", "bob")}
    app = hub(talking(), isolation="directory", auth=StaticTokenVerifier(tokens))
    async with served(app) as front:
        clients = [
            await front.connect(capabilities=ROOTS, headers={"Authorization": f"Bearer {who}"})
            for who in ("ann", "ann", "bob")
        ]
        for client in clients:
            tell(client, "file:///x")
        found = [await pid(client) for client in clients]
        assert found[0] == found[1] != found[2]


def narrowed(group_id: str) -> Any:
    """The group `red` has lost the server `a`."""
    return Group("red", servers=("b",)) if group_id == "red" else None


async def test_an_instance_ends_when_the_group_of_its_session_loses_the_server_and_says_and_asks_nothing_more(
    tmp_path: Path,
) -> None:
    groups, log = {"red": {"servers": ["a", "b"]}}, tmp_path / "audit.jsonl"
    app = build_aggregator(config(a=talking(), b=lean()), isolation="session", groups=groups, audit=str(log))
    scripts = scripted(app)
    async with served(app) as front:
        everybody = await front.connect(capabilities=ROOTS)
        kept = await pid(everybody)
        red = await front.connect("red", capabilities=ROOTS)
        lost = await pid(red)
        child = scripts["a"].life.child
        child.notify("notifications/message", {"level": "info", "data": "before"})
        assert (await red.heard("notifications/message"))["params"]["data"] == "before"
        assert sorted(each.key for each in instances(app)) == ["a", "a"]

        app._backend.regroup(narrowed)
        assert [each.status().pid for each in instances(app)] == [kept]
        child.notify("notifications/message", {"level": "info", "data": "after"})
        child.play_outside({"ask": {"late": {"method": "roots/list"}}})
        assert (await red.error("tools/call", {"name": "a:pid"}))["code"] == -32602
        await red.call("b:pid")
        assert lost != kept == await pid(everybody)
        assert "after" not in repr(red.notifications)
        assert red.questions == []
        lines = await until(lambda: [line for line in map(json.loads, log.open()) if "server:a" in line["principal"]])
        asked = {"server": "a", "method": "roots/list", "event": "denied", "outcome": "denied"}
        assert [{name: line[name] for name in asked} for line in lines] == [asked]


async def test_a_call_that_an_instance_works_on_when_its_group_loses_the_server_fails_with_the_reason() -> None:
    app = build_aggregator(config(a=talking(), b=lean()), isolation="session", groups={"red": {"servers": ["a", "b"]}})
    async with served(app) as front:
        red = await front.connect("red")
        await pid(red)
        _, unanswered = red.begin("tools/call", {"name": "a:play", "arguments": {"script": [{"wait": "never"}]}})
        await until(lambda: instances(app)[0].calls.in_flight)
        app._backend.regroup(narrowed)
        response = await asyncio.wait_for(unanswered, PATIENCE)
        reason = "the group does not have it any more while it was answering tools/call"
        assert response["error"]["message"] == f"server 'a': {reason}"


async def test_a_call_under_way_when_its_group_loses_the_server_begins_no_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = build_aggregator(config(a=lean(), b=lean()), isolation="session", groups={"red": {"servers": ["a", "b"]}})
    async with served(app) as front:
        red = await front.connect("red")
        runtime = app._backend.runtime
        assert runtime is not None
        instance_for = runtime.instances.instance_for

        async def late(*args: Any) -> Any:
            app._backend.regroup(narrowed)
            return await instance_for(*args)

        monkeypatch.setattr(runtime.instances, "instance_for", late)
        error = await red.error("tools/call", {"name": "a:pid"})
        assert error["message"] == "server 'a': the group does not have it any more"
        assert instances(app) == []


@pytest.mark.process
async def test_a_program_that_is_named_by_a_relative_path_is_that_of_the_clients_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = lean()
    for name in ("hub", "a", "b"):
        (tmp_path / name).mkdir()
        program = tmp_path / name / "server"
        arguments = " ".join(map(shlex.quote, [entry["command"], *entry["args"][:2], json.dumps({"name": name})]))
        program.write_text(f"#!/bin/sh\nexport WHERE={name}\nexec {arguments}\n")
        program.chmod(0o700)
    monkeypatch.chdir(tmp_path / "hub")
    app = fastmcp_aggregator.build_aggregator(config(a={"command": "./server"}), isolation="auto")
    async with app, working_in(app, str(tmp_path / "a")) as one, working_in(app, str(tmp_path / "b")) as other:
        assert app.health()["a"].isolation_reason == "its `command` is a path relative to the working folder"
        assert [(await client.call("a:environment"))["WHERE"] for client in (one, other)] == ["a", "b"]
