"""How many processes start at once, which is next, and that nobody waits for them who need not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE, RawClient, config, connected, lean, timed, until
from support.remote_server import Request, remote_server

from fastmcp_aggregator import Aggregator, ChildState, build_aggregator
from fastmcp_aggregator.children.process.process import launch_early
from fastmcp_aggregator.children.process.start_slots import EARLY, Start, StartSlots
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.settings.options import EndpointOptions

pytestmark = pytest.mark.process

FOREVER = 3600.0


class Starts:
    """Starts that take turns; each goes on until it is ended."""

    def __init__(self, turns: StartSlots) -> None:
        self._turns = turns
        self.begun: list[str] = []
        self.wanted: set[str] = set()
        self.stopping = asyncio.Event()
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def queue(self, *names: str) -> None:
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._start(name))
        await settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await settle()

    async def _start(self, name: str) -> None:
        async with self._turns.slot(name, self.stopping, Start(name, lambda: name in self.wanted)):
            if not self.stopping.is_set():
                self.begun.append(name)
                await self._ends[name].wait()


async def settle() -> None:
    """Let all tasks go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def starts() -> AsyncIterator[Starts]:
    starts = Starts(StartSlots(2, FOREVER))
    yield starts
    for task in starts.tasks.values():
        task.cancel()
    await asyncio.gather(*starts.tasks.values(), return_exceptions=True)


async def test_so_many_start_at_once_and_the_next_when_one_has_ended(starts: Starts) -> None:
    await starts.queue("a", "b", "c", "d")
    assert starts.begun == ["a", "b"]
    await starts.end("b")
    assert starts.begun == ["a", "b", "c"]
    await starts.end("c")
    await starts.end("a")
    assert starts.begun == ["a", "b", "c", "d"]


async def test_one_that_a_request_waits_for_goes_first(starts: Starts) -> None:
    await starts.queue("a", "b", "c", "d", "e")
    starts.wanted.add("e")
    await starts.end("a")
    assert starts.begun == ["a", "b", "e"]
    starts.wanted.clear()
    await starts.end("b")
    assert starts.begun == ["a", "b", "e", "c"]


async def test_who_is_cancelled_or_told_to_stop_leaves_the_queue(starts: Starts) -> None:
    await starts.queue("a", "b", "c", "d")
    starts.tasks["c"].cancel()
    await starts.end("a")
    assert starts.begun == ["a", "b", "d"]
    await starts.queue("e")
    starts.stopping.set()
    await asyncio.wait_for(starts.tasks["e"], PATIENCE)
    assert starts.begun == ["a", "b", "d"]


async def test_a_start_that_fails_or_is_cancelled_gives_its_turn_back(starts: Starts) -> None:
    await starts.queue("a", "b", "c")
    starts.tasks["a"].cancel()
    await settle()
    assert starts.begun == ["a", "b", "c"]


async def test_one_that_never_ends_keeps_nobody_waiting() -> None:
    turns = StartSlots(1, timeout=0.0)
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(PATIENCE):
            for name in ("hangs", "a"):
                await stack.enter_async_context(turns.slot(name, asyncio.Event(), Start(name)))
    assert (turns._held, turns._waiting) == ({}, {})


@asynccontextmanager
async def hanging(turns: StartSlots, holder: Callable[[str], str | None]) -> AsyncIterator[Callable[..., Any]]:
    """Begins starts that requests wait for and that hang, and ends some; returns those that have slots so far."""
    begun, tasks = list[str](), dict[str, asyncio.Task[None]]()

    async def start(name: str) -> None:
        async with turns.slot(name, asyncio.Event(), Start(name[0], lambda: True, lambda: holder(name))):
            begun.append(name)
            await asyncio.Event().wait()

    async def step(*names: str) -> list[str]:
        for name in names:
            if name in tasks:
                tasks[name].cancel()
                await settle()
            else:
                tasks[name] = asyncio.create_task(start(name))
        await settle()
        return begun

    yield step
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def test_of_what_requests_wait_for_servers_take_turns() -> None:
    async with hanging(StartSlots(2, FOREVER), lambda _: None) as step:
        assert await step("a1", "a2", "a3", "b1", "b2", "b3", "c1") == ["a1", "a2", "b1", "b2"]
        assert (await step("a1"))[4:] == ["c1"]
        assert (await step("b1"))[5:] == ["a3"]


async def test_one_server_has_half_of_the_slots_at_most() -> None:
    async with hanging(StartSlots(2, FOREVER), lambda _: None) as step:
        assert await step("a1", "a2", "a3", "a4") == ["a1", "a2"]
        assert (await step("b1"))[2:] == ["b1"]
        assert (await step("a1"))[3:] == ["a3"]


async def test_one_caller_has_half_of_the_slots_at_most_with_whatever_servers() -> None:
    async with hanging(StartSlots(2, FOREVER), lambda name: "bob" if name[0] == "z" else "alice") as step:
        assert await step("a1", "b1", "c1", "d1") == ["a1", "b1"]
        assert (await step("z1", "z2", "z3"))[2:] == ["z1", "z2"]
        assert (await step("a1"))[4:] == ["c1"]


async def test_who_holds_none_begins_though_two_callers_hold_all_slots() -> None:
    of = {"a": "alice", "b": "bert", "c": "carol", "d": "dave", "e": "eve"}
    async with hanging(StartSlots(2, FOREVER), lambda name: of[name[0]]) as step:
        assert await step("a1", "a2", "a3", "b1", "b2", "b3") == ["a1", "a2", "b1", "b2"]
        assert (await step("c1", "c2", "d1"))[4:] == ["c1", "d1"]
        assert (await step("a1"))[6:] == []
        assert (await step("e1"))[6:] == ["e1"]
        assert (await step("b1"))[7:] == []
        assert (await step("c1", "d1"))[7:] == ["c2"]


async def test_once_callers_hold_all_slots_who_holds_most_gives_way_to_who_holds_none() -> None:
    async with hanging(StartSlots(2, FOREVER), lambda name: name[0]) as step:
        assert await step("a1", "a2", "b1", "b2", "c1", "d1") == ["a1", "a2", "b1", "b2", "c1", "d1"]
        assert (await step("e1", "e2", "f1", "f2", "a3"))[6:] == ["e1", "f1"]
        assert (await step("g1"))[8:] == []
        assert (await step("a1", "b1"))[8:] == []
        assert (await step("c1"))[8:] == ["g1"]


async def test_who_holds_none_begins_though_others_have_many_instances_of_the_same_server() -> None:
    async with hanging(StartSlots(2, FOREVER), lambda name: f"caller{name[1:]}"[:7]) as step:
        assert await step("a10", "a11", "a12", "a20", "a21") == ["a10", "a11", "a20"]
        assert (await step("a30"))[3:] == ["a30"]


async def test_who_holds_none_is_before_those_that_wait_longer_and_hold_some() -> None:
    async with hanging(StartSlots(1, FOREVER), lambda name: "alice" if name[0] == "a" else name) as step:
        assert await step("a1", "a2", "b1", "c1", "d1") == ["a1", "b1", "c1"]
        assert (await step("b1"))[3:] == ["d1"]
        assert (await step("c1", "d1"))[4:] == []
        assert (await step("a1"))[4:] == ["a2"]


def slots(number: int) -> Timings:
    return Timings(starts_at_once=number, start_slot_timeout=FOREVER, connect_slot_timeout=FOREVER)


# With processes. Each server is listed when its gate is opened.


@asynccontextmanager
async def starting(folder: Path, keys: str, **settings: Any) -> AsyncIterator[tuple[Aggregator, RawClient]]:
    """An app whose children start two at a time, and a client of it that has been answered."""
    app = timed(build_aggregator(gated(folder, keys), strict=False, ready_wait=0.0, **settings), slots(2))
    async with app, connected(app) as client:
        yield app, client


def gated(folder: Path, keys: str) -> dict[str, Any]:
    return config(**{key: lean(wait_for_file=str(folder / key), record=str(folder / f"{key}.pid")) for key in keys})


def begun(app: Aggregator) -> str:
    """The servers that have a process."""
    return "".join(key for key, status in app.health().items() if status.pid is not None)


def has_begun(app: Aggregator, keys: str) -> Callable[[], bool]:
    return lambda: begun(app) == keys


async def test_the_client_is_answered_while_servers_wait_for_their_start(
    tmp_path: Path,
) -> None:
    async with starting(tmp_path, "abcde") as (app, client):
        assert await client.names() == []
        await until(has_begun(app, "ab"))
        (tmp_path / "a").touch()
        await until(has_begun(app, "abc"))
        assert app.health()["a"].state is ChildState.RUNNING
        for key in "bcde":
            (tmp_path / key).touch()
        await until(lambda: all(status.state is ChildState.RUNNING for status in app.health().values()))


async def test_a_call_starts_its_server_before_those_that_nobody_waits_for(
    tmp_path: Path,
) -> None:
    async with starting(tmp_path, "abcde") as (app, client):
        _, call = client.begin("tools/call", {"name": "e:echo"})
        await client.result("ping")
        await until(has_begun(app, "ab"))
        (tmp_path / "e").touch()
        (tmp_path / "b").touch()
        assert "result" in await asyncio.wait_for(call, PATIENCE)
        await until(has_begun(app, "abce"))


async def test_servers_of_a_new_config_take_turns_with_the_others(
    tmp_path: Path,
) -> None:
    async with starting(tmp_path, "ab") as (app, _):
        await until(has_begun(app, "ab"))
        await app.reload(gated(tmp_path, "abcd"))
        (tmp_path / "b").touch()
        await until(has_begun(app, "abc"))
        assert not (tmp_path / "d.pid").exists()


async def test_so_many_remote_servers_are_connected_at_once_and_processes_do_not_wait_for_them() -> None:
    asked: list[Request] = []

    async def never(request: Request) -> bool:
        asked.append(request)
        return await asyncio.Event().wait()

    async with remote_server(never) as server:
        entries = {f"far{number}": {"url": server.url} for number in range(5)}
        app = timed(build_aggregator(config(**entries, near=lean()), strict=False, ready_wait=0.0), slots(2))
        async with app, connected(app) as client:
            assert (await client.call("near:echo", x=1))["arguments"] == {"x": 1}
            await until(lambda: len(asked) == 2)
            client.begin("tools/call", {"name": "far4:echo"})
            await until(lambda: len(asked) == 3)
            assert app.health()["far2"].state is ChildState.INITIALIZING


async def test_a_server_that_waits_is_not_started_any_more_when_the_app_ends(
    tmp_path: Path,
) -> None:
    async with starting(tmp_path, "abcd") as (app, _):
        await until(has_begun(app, "ab"))
    assert not list(tmp_path.glob("[cd].pid"))


async def test_the_deadline_of_a_start_counts_from_the_start_of_the_process() -> None:
    document, hangs = config(hangs=lean(silent=True), b=lean()), {"startup_timeout": 1.0}
    app = timed(build_aggregator(document, strict=False, servers={"hangs": hangs}), slots(1))
    async with app:
        settled = [status.server_key async for status in app.settling()]
        assert settled == ["hangs", "b"]
        assert app.health()["b"].state is ChildState.RUNNING


async def test_only_the_first_processes_are_started_before_the_import() -> None:
    servers = {f"s{number}": lean() for number in range(EARLY + 2)}
    document = load_config(config(far={"url": "https://example.invalid/mcp"}, **servers))
    launched = launch_early(document, EndpointOptions(), lambda _: True)
    try:
        assert list(launched) == list(servers)[:EARLY]
    finally:
        for task in launched.values():
            await (await task).stop()
