"""Servers that run only while they are needed, and what they offered in an earlier run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.harness import PATIENCE, config, connected, lean, until
from support.memory import Scripts, scripted
from support.virtual_time import VirtualTimePolicy, now
from support.wire import RawClient

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.status.server_status import ChildState

MINUTES = int(os.environ.get("KILLED_MINUTES", "60"))
"""For how long a server is killed every minute."""

AUTO: dict[str, Any] = {"start": "auto", "list_grace": 15, "catalogue": "on", "strict": False}


@pytest.fixture
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


@asynccontextmanager
async def run(
    document: dict[str, Any], prepare: Callable[[Scripts], None] = lambda _: None, **settings: Any
) -> AsyncIterator[tuple[Aggregator, Scripts, RawClient]]:
    """One run of an aggregator with a client; what it has learned is on the disk afterwards."""
    app = build_aggregator(document, **{**AUTO, **settings})
    scripts = scripted(app, Timings(clock=now))
    prepare(scripts)
    async with app, connected(app) as client:
        yield app, scripts, client
    assert app._backend._catalogues.flush(PATIENCE)


async def names(client: RawClient) -> list[str]:
    return [tool["name"] for tool in (await client.result("tools/list"))["tools"]]


def told(client: RawClient, method: str) -> list[dict[str, Any]]:
    return [message for message in client.notifications if message["method"] == method]


def answered(result: dict[str, Any]) -> str:
    return json.loads(result["content"][0]["text"])["arguments"].get("text", "")


async def call(client: RawClient, tool: str, **arguments: Any) -> dict[str, Any]:
    return await client.result("tools/call", {"name": tool, "arguments": arguments})


async def learned(document: dict[str, Any], **settings: Any) -> list[str]:
    """What is listed in a first run."""
    async with run(document, **settings) as (_, _, client):
        return await names(client)


async def test_restart_starts_a_server_that_sleeps() -> None:
    document = config(a=lean())
    await learned(document)
    async with run(document) as (app, scripts, client):
        await names(client)
        app.restart("a")
        await until(lambda: app.children["a"].is_serving)
        assert len(scripts["a"].lives) == 1


async def test_what_was_listed_before_is_listed_at_once_and_started_by_the_first_call() -> None:
    document = config(a=lean(), b=lean())
    before = await learned(document)
    async with run(document) as (app, scripts, client):
        assert await names(client) == before
        assert {status.state for status in app.health().values()} == {ChildState.SLEEPING}
        assert answered(await call(client, "a:echo", text="hello")) == "hello"
        assert len(scripts["a"].lives) == 1
        assert scripts["b"].lives == []
        assert await names(client) == before
    assert told(client, "notifications/tools/list_changed") == []


async def test_a_server_that_nobody_uses_is_stopped_and_stays_listed() -> None:
    async with run(config(a=lean()), idle_timeout=60) as (app, scripts, client):
        before = await names(client)
        await asyncio.sleep(59)
        await call(client, "a:echo", text="x")
        await asyncio.sleep(59)
        assert app.health()["a"].state is ChildState.RUNNING
        await asyncio.sleep(2)
        assert app.health()["a"].state is ChildState.SLEEPING
        assert scripts["a"].life.code is not None
        assert await names(client) == before
        assert answered(await call(client, "a:echo", text="again")) == "again"
        assert len(scripts["a"].lives) == 2
        assert app.health()["a"].restarts == 0
    assert told(client, "notifications/tools/list_changed") == []


@pytest.mark.parametrize("start", ["auto", "on_demand"])
async def test_a_server_is_stopped_when_its_idle_time_ends_between_two_ticks_of_the_clock(start: str) -> None:
    async with run(config(a=lean()), idle_timeout=60, start=start) as (app, _, client):
        for number in range(1, 16):
            await asyncio.sleep(number / 7)
            await call(client, "a:echo", text="x")
            await asyncio.sleep(61)
            assert app.health()["a"].state is ChildState.SLEEPING


async def test_what_was_made_of_an_offer_goes_on_being_used_when_its_server_sleeps_and_wakes() -> None:
    document = config(a=lean(), b=lean())
    await learned(document)
    async with run(document, idle_timeout=60) as (app, scripts, client):
        await names(client)
        table = app._directory.table
        for lives in (1, 2):
            await call(client, "a:echo", text="hello")
            await asyncio.sleep(61)
            assert app.children["a"].state is ChildState.SLEEPING
            assert len(scripts["a"].lives) == lives
        assert app._directory.table is table


async def test_a_server_with_a_request_in_flight_is_not_stopped() -> None:
    async with run(config(a=lean()), idle_timeout=60) as (app, scripts, client):
        _, held = client.begin("tools/call", {"name": "a:hold", "arguments": {}})
        await asyncio.sleep(200)
        assert app.health()["a"].state is ChildState.RUNNING
        await call(client, "a:release")
        await held
        assert len(scripts["a"].lives) == 1


@pytest.mark.parametrize("settings", [{"idle_timeout": 0}, {"servers": {"a": {"stateful": True}}}, {"start": "eager"}])
async def test_a_server_that_is_to_run_is_not_stopped(settings: dict[str, Any]) -> None:
    async with run(config(a=lean()), **settings) as (app, _, client):
        await call(client, "a:echo", text="x")
        await asyncio.sleep(10_000)
        assert app.health()["a"].state is ChildState.RUNNING


async def test_many_calls_that_wake_a_server_start_it_once_and_are_executed_once() -> None:
    document = config(a=lean())
    await learned(document)
    async with run(document) as (_, scripts, client):
        results = await asyncio.gather(*(call(client, "a:echo", text=str(number)) for number in range(20)))
        assert list(map(answered, results)) == [str(number) for number in range(20)]
        assert len(scripts["a"].lives) == 1
        calls = [message for message in scripts["a"].life.received if message.get("method") == "tools/call"]
        assert len(calls) == 20


async def test_a_server_of_another_version_is_listed_as_it_was_until_its_first_call_which_is_executed() -> None:
    document = config(a=lean())
    before = await learned(document)

    def upgraded(scripts: Scripts) -> None:
        scripts["a"].options = {"tool_names": ["fresh"]}

    async with run(document, upgraded) as (_, _, client):
        assert await names(client) == before
        assert answered(await call(client, "a:echo", text="x")) == "x"
        await until(lambda: told(client, "notifications/tools/list_changed"))
        assert await names(client) == [*before, "a:fresh"]
        await asyncio.sleep(60)
        assert len(told(client, "notifications/tools/list_changed")) == 1
    assert await learned(document) == [*before, "a:fresh"]


async def test_a_call_made_for_another_schema_is_not_executed_and_clients_are_told() -> None:
    document = config(a=lean())
    await learned(document)

    def changed(scripts: Scripts) -> None:
        schema = {"type": "object", "properties": {"other": {"type": "string"}}}
        scripts["a"].options = {"tool_extra": {"inputSchema": schema}}

    async with run(document, changed) as (_, scripts, client):
        await names(client)
        error = await client.error("tools/call", {"name": "a:echo", "arguments": {"text": "x"}})
        assert "its tool 'echo' is another one than was listed, so it was not called; list again" in error["message"]
        assert not [message for message in scripts["a"].life.received if message.get("method") == "tools/call"]
        await until(lambda: told(client, "notifications/tools/list_changed"))
        assert len(told(client, "notifications/tools/list_changed")) == 1
        assert answered(await call(client, "a:echo", text="x")) == "x"


async def test_a_server_that_takes_long_to_wake_is_waited_for_with_progress() -> None:
    document = config(a=lean())
    await learned(document)

    def slow(scripts: Scripts) -> None:
        scripts["a"].options = {"silent": True}

    async with run(document, slow, startup_timeout=20) as (_, _, client):
        await names(client)
        began = now()
        params = {"name": "a:echo", "arguments": {"text": "x"}, "_meta": {"progressToken": "p"}}
        error = await client.error("tools/call", params)
        assert now() - began == pytest.approx(20, abs=1)
        assert "it did not initialize within 20 s" in error["message"]
        said = [message["params"] for message in told(client, "notifications/progress")]
        assert len(said) >= 18
        assert [each["progress"] for each in said] == sorted({each["progress"] for each in said})
        assert {each["message"] for each in said} == {"server 'a' is starting"}


async def test_servers_that_had_better_run_are_not_put_to_sleep_by_auto() -> None:
    changing = lean(
        resources=[{"uri": "x://y", "name": "y"}], capabilities={"resources": {"subscribe": True}, "tools": {}}
    )
    document = config(memory=lean(), a=lean(), changing=changing)
    settings: dict[str, Any] = {"servers": {"a": {"stateful": True}, "memory": {"stateful": None}}}
    await learned(document, **settings)
    async with run(document, **settings) as (app, _, _):
        await until(lambda: all(child.is_serving for key, child in app.children.items() if key != "memory"))


async def test_the_offer_of_one_kind_of_client_is_not_shown_to_another() -> None:
    document = config(a=lean())
    await learned(document)
    app = build_aggregator(document, **AUTO)
    scripts = scripted(app, Timings(clock=now))
    app._backend.profile.expect_one()
    async with app, connected(app, capabilities={"sampling": {}}) as client:
        assert await names(client)
        assert len(scripts["a"].lives) == 1
    assert app._backend._catalogues.flush(PATIENCE)
    app = build_aggregator(document, **AUTO)
    scripts = scripted(app, Timings(clock=now))
    app._backend.profile.expect_one()
    async with app, connected(app, capabilities={"sampling": {}}) as client:
        assert await names(client)
        assert scripts["a"].lives == []


async def test_strict_starts_all_and_lists_what_they_offer_now() -> None:
    document = config(a=lean())
    await learned(document)
    async with run(document, strict=True) as (app, scripts, _):
        assert len(scripts["a"].lives) == 1
        assert app.health()["a"].state is ChildState.RUNNING


async def test_a_server_from_the_catalogue_that_cannot_start_leaves_the_lists_after_the_grace() -> None:
    document = config(a=lean(), b=lean())
    await learned(document)

    def broken(scripts: Scripts) -> None:
        scripts["a"].failure = ChildServerError("a", "startup", "it is gone")

    async with run(document, broken, start="eager") as (app, _, client):
        assert len({name.partition(":")[0] for name in await names(client)}) == 2
        await asyncio.sleep(14)
        assert app.children["a"].is_listed
        await until(lambda: told(client, "notifications/tools/list_changed"))
        assert {name.partition(":")[0] for name in await names(client)} == {"b"}


async def test_a_server_that_is_killed_every_minute_changes_no_list() -> None:
    async with run(config(a=lean(), b=lean()), start="eager") as (_, scripts, client):
        before = await client.result("tools/list")
        for minute in range(MINUTES):
            scripts["a"].life.die()
            assert await client.result("tools/list") == before
            assert answered(await call(client, "a:echo", text=str(minute))) == str(minute)
            await asyncio.sleep(60)
        assert len(scripts["a"].lives) == MINUTES + 1
        assert await client.result("tools/list") == before
        assert told(client, "notifications/tools/list_changed") == []


async def test_a_server_that_lists_in_another_order_changes_no_list() -> None:
    document = config(a=lean(tool_names=["x", "y", "z"]))
    async with run(document, start="eager") as (_, scripts, client):
        before = await client.result("tools/list")
        scripts["a"].options = {"tool_names": ["z", "x", "y"]}
        scripts["a"].life.die()
        await call(client, "a:echo", text="x")
        assert len(scripts["a"].lives) == 2
        assert await client.result("tools/list") == before
        assert told(client, "notifications/tools/list_changed") == []


async def test_a_bare_name_is_known_by_the_last_catalogue_of_every_server() -> None:
    document = config(a=lean(tool_names=["only"]), b=lean())
    await learned(document)

    def silent(scripts: Scripts) -> None:
        scripts["b"].options = {"silent": True}

    async with run(document, silent) as (app, _, _):
        called = await app.call_tool("only", {"text": "x"})
        assert '"tool": "only"' in called.content[0].text  # type: ignore[union-attr]


async def test_an_entry_that_is_changed_without_a_change_of_the_offer_changes_no_list() -> None:
    async with run(config(a=lean(), b=lean()), start="eager") as (app, scripts, client):
        before = await client.result("tools/list")
        await app.reload(config(a={**lean(), "env": {"VERSION": "2"}}, b=lean()))
        assert await client.result("tools/list") == before
        assert answered(await call(client, "a:echo", text="x")) == "x"
        assert len(scripts["a"].lives) == 2
        await asyncio.sleep(20)
        assert await client.result("tools/list") == before
        assert told(client, "notifications/tools/list_changed") == []


async def test_a_server_that_completes_its_lists_late_is_told_of_once_or_not_at_all() -> None:
    document = config(a=lean())
    await learned(document)
    async with run(document, start="eager") as (app, scripts, client):
        await names(client)
        life = scripts["a"].life
        life.child.tools.append(life.child.tool("late"))
        life.child.send({"method": "notifications/tools/list_changed"})
        await until(lambda: told(client, "notifications/tools/list_changed"))
        before = await client.result("tools/list")
        app.children["a"].offer.stay()
        life.die()
        await until(lambda: len(scripts["a"].lives) == 2)
        life = scripts["a"].life
        life.child.tools.append(life.child.tool("late"))
        life.child.send({"method": "notifications/tools/list_changed"})
        assert answered(await call(client, "a:echo", text="x")) == "x"
        assert await client.result("tools/list") == before
        assert len(told(client, "notifications/tools/list_changed")) == 1


@pytest.mark.parametrize(("settings", "sleeps"), [({}, True), ({"servers": {"a": {"stateful": True}}}, False)])
async def test_an_instance_of_a_folder_is_stopped_while_it_is_idle_and_the_first_one_that_no_call_reaches(
    settings: dict[str, Any], sleeps: bool
) -> None:
    app = build_aggregator(config(a=lean()), **AUTO, isolation="directory", idle_timeout=60, **settings)
    scripts = scripted(app, Timings(clock=now))
    async with app, connected(app, folder="/a") as client:
        await call(client, "a:echo")
        ((instance, _),) = app._backend.runtime.instances
        await asyncio.sleep(3600)
        assert app.children["a"].state is ChildState.SLEEPING
        assert (instance.state is ChildState.SLEEPING) is sleeps
        assert answered(await call(client, "a:echo", text="back")) == "back"
        assert app.children["a"].state is ChildState.SLEEPING
        assert [life.folder for life in scripts["a"].lives] == [None, "/a", "/a"][: 3 if sleeps else 2]


@pytest.mark.parametrize("asks_for_roots", [False, True])
async def test_an_instance_that_asks_for_roots_in_its_start_has_a_moment_to_take_them_up(asks_for_roots: bool) -> None:
    app = build_aggregator(config(a=lean(asks_for_roots=asks_for_roots)), **AUTO, isolation="directory")
    scripted(app, Timings(clock=now))
    async with app, connected(app, folder="/a", capabilities={"roots": {}}) as client:
        client.on_question = lambda method, params: {"result": {"roots": []}}
        began = now()
        await call(client, "a:echo")
        assert (now() - began >= 0.1) is asks_for_roots
        began = now()
        await call(client, "a:echo")
        assert now() - began < 0.1


async def test_clients_are_told_of_what_only_a_server_that_was_not_up_yet_kept_out_of_the_lists() -> None:
    def down(scripts: Scripts) -> None:
        scripts["a"].failure = ChildServerError("a", "startup", "it is not there yet")

    document = config(a=lean(capabilities={"prompts": {}}), b=lean())
    async with run(document, down, prefix=False) as (_, scripts, client):
        assert await names(client) == [], "each could be one of the first server's"
        scripts["a"].failure = None
        await until(lambda: told(client, "notifications/tools/list_changed"))
        assert "echo" in await names(client)
