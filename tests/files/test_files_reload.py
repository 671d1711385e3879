"""A new config while the app runs: only the servers that it changes are touched."""

import asyncio
import json
import logging
import os
import pty
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE, RawClient, ServerProcess, briefly, config, connected, lean, running, timed, until
from support.processes import is_gone

from fastmcp_aggregator import (
    Aggregator,
    ChildState,
    ConfigError,
    ServerStatus,
    StartupError,
    build_aggregator,
    load_config,
)
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.files.followed import FollowedFiles

pytestmark = pytest.mark.process

MISSING = {"command": "no-such-command-anywhere"}
PROGRAM = [sys.executable, "-m", "fastmcp_aggregator"]
TOLD = "notifications/tools/list_changed"
SECRET = "hunter2-of-the-test"


def pid_of(app: Aggregator, key: str) -> int:
    pid = app.health()[key].pid
    assert pid is not None
    return pid


def is_running(app: Aggregator, key: str) -> bool:
    return key in app.health() and app.health()[key].state is ChildState.RUNNING


async def servers(client: RawClient) -> list[str]:
    """The server keys of the tools that are listed, in order."""
    return list(dict.fromkeys(name.split(":")[0] for name in await client.names()))


async def held(client: RawClient, app: Aggregator, key: str) -> asyncio.Future[dict[str, Any]]:
    """The answer to a call that the server has and does not answer."""
    before = app.health()[key].in_flight
    _, answer = client.begin("tools/call", {"name": f"{key}:hold"})
    await until(lambda: app.health()[key].in_flight > before)
    await client.call(f"{key}:echo")  # it reads in order, so it has the other
    return answer


def write(path: Path, text: str) -> None:
    """Put a file in place as editors do."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def write_config(path: Path, **entries: dict[str, Any]) -> str:
    write(path, json.dumps(config(**entries)))
    return str(path)


# What is told of it.


async def test_what_a_reload_has_changed_is_logged_and_a_file_that_cannot_be_used_is_told_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastmcp_aggregator.aggregator")
    path = tmp_path / "mcp.json"
    write_config(path, a=lean(), b=lean())
    app = build_aggregator(path)
    await app.reload()
    assert caplog.messages == []
    write(path, "{")
    with pytest.raises(ConfigError):
        await app.reload()
    refused = app.refused_files()["config"]
    assert refused is not None
    assert "mcp.json" in str(refused.problem)
    write_config(path, b=lean(name="other"), c=lean())
    await app.reload()
    assert app.refused_files() == {"config": None}
    assert caplog.messages == ["config read again: 2 servers; added: c; removed: a; changed: b"]


# What becomes of the servers.


async def test_a_server_whose_entry_is_the_same_keeps_its_process_and_its_calls() -> None:
    app = build_aggregator(config(a=lean(), b=lean()))
    async with app, connected(app) as client:
        pid, answer = pid_of(app, "a"), await held(client, app, "a")
        await app.reload(config(a=lean(), c=lean()))
        assert not answer.done()
        await client.call("a:release")
        assert "result" in await answer
        assert (pid_of(app, "a"), app.health()["a"].restarts) == (pid, 0)


async def test_a_server_that_is_removed_is_closed_and_its_calls_say_why() -> None:
    app = build_aggregator(config(a=lean(), b=lean()))
    async with app, connected(app) as client:
        pid, answer = pid_of(app, "b"), await held(client, app, "b")
        await app.reload(config(a=lean()))
        error = (await answer)["error"]
        assert error["message"] == "server 'b': it was removed from the config while it was answering tools/call"
        assert is_gone(pid)
        assert list(app.health()) == await servers(client) == ["a"]
        assert "Tool not found" in (await client.error("tools/call", {"name": "b:echo"}))["message"]


async def test_a_server_whose_entry_is_changed_is_started_anew_and_its_calls_say_why() -> None:
    app = build_aggregator(config(a=lean(name="old")))
    async with app, connected(app) as client:
        pid, answer = pid_of(app, "a"), await held(client, app, "a")
        await app.reload(config(a=lean(name="new")))
        error = (await answer)["error"]
        assert error["message"] == "server 'a': its entry in the config was changed while it was answering tools/call"
        assert is_gone(pid)
        assert (await client.call("a:echo"))["server"] == "new"
        assert pid_of(app, "a") != pid


@pytest.fixture
def grace_over(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Until it is set, the time lasts in which a process may end by itself."""
    over, exits_within = asyncio.Event(), ChildProcess._exits_within

    async def when_over(process: ChildProcess, seconds: float) -> bool:
        await over.wait()
        return await exits_within(process, seconds)

    monkeypatch.setattr(ChildProcess, "_exits_within", when_over)
    return over


PATIENT = Timings(stop_bound=3600.0)


async def test_a_changed_server_begins_when_its_predecessor_is_gone_and_a_new_one_at_once(
    tmp_path: Path, grace_over: asyncio.Event
) -> None:
    successor, new = tmp_path / "successor", tmp_path / "new"
    app = briefly(timed(build_aggregator(config(a=lean(ignore_eof=True))), PATIENT))
    async with app:
        old = pid_of(app, "a")
        reloading = asyncio.create_task(app.reload(config(a=lean(record=str(successor)), b=lean(record=str(new)))))
        await until(new.exists)
        await until(lambda: is_running(app, "b"))
        assert (is_gone(old), successor.exists()) == (False, False)
        grace_over.set()
        await reloading
        assert is_gone(old)
        await until(successor.exists)


async def test_lists_and_health_are_in_the_order_of_the_new_config() -> None:
    app = build_aggregator(config(a=lean(), b=lean()))
    async with app, connected(app) as client:
        pids = {key: pid_of(app, key) for key in "ab"}
        await app.reload(config(c=lean(), b=lean(), a=lean()))
        await until(lambda: is_running(app, "c"))
        assert list(app.health()) == await servers(client) == ["c", "b", "a"]
        assert {key: pid_of(app, key) for key in "ab"} == pids


async def test_a_misspelt_field_is_a_warning_at_the_start_and_when_it_is_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def warnings() -> list[str]:
        told = [record.getMessage() for record in caplog.records if "did you mean" in record.getMessage()]
        caplog.clear()
        return told

    app = build_aggregator(config(a=lean() | {"evn": {}}))
    assert warnings() == ["server 'a': has `evn`, which is ignored; did you mean `env`?"]
    async with app:
        assert warnings() == []
        await app.reload(config(a=lean() | {"disable": True}))
        assert warnings() == ["server 'a': has `disable`, which is ignored; did you mean `disabled`?"]
        await app.reload(config(a=lean() | {"disable": True}, b=lean()))
        assert warnings() == []
        await app.reload(config(a=lean()))
        assert warnings() == []


async def test_a_secret_that_is_the_same_changes_nothing_and_another_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = lean() | {"env": {"TOKEN": "${TEST_TOKEN}"}}
    monkeypatch.setenv("TEST_TOKEN", "first")
    app = build_aggregator(config(a=entry))
    async with app, connected(app) as client:
        pid = pid_of(app, "a")
        await app.reload(config(a=entry | {"autoApprove": ["echo"]}))
        assert pid_of(app, "a") == pid
        monkeypatch.setenv("TEST_TOKEN", "second")
        await app.reload(config(a=entry))
        assert (await client.call("a:environment"))["TOKEN"] == "second"
        assert is_gone(pid)


def test_servers_are_equal_by_value_with_their_secrets_and_without_what_is_ignored() -> None:
    def server(**more: Any) -> Any:
        return load_config(config(a={"url": "http://x/mcp", **more})).servers["a"]

    assert server(headers={"A": SECRET}) == server(headers={"A": SECRET}, icon="x")
    assert server(headers={"A": SECRET}) != server(headers={"A": "other"})
    assert server(timeout=1) != server(timeout=2)


async def test_a_config_that_cannot_be_used_changes_nothing() -> None:
    app = build_aggregator(config(a=lean()))
    async with app, connected(app) as client:
        before, pid = app.config, pid_of(app, "a")
        with pytest.raises(ConfigError) as caught:
            await app.reload(config(b={"command": 1}, c={}))
        assert len(caught.value.details) == 2
        assert app.config is before
        assert (await servers(client), pid_of(app, "a")) == (["a"], pid)
        await app.reload(config(b=lean()))
        await until(lambda: is_running(app, "b"))
        assert await servers(client) == ["b"]


async def test_without_a_new_config_the_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    app = build_aggregator(write_config(path, a=lean()))
    async with app:
        write_config(path, b=lean())
        await app.reload()
        assert list(app.health()) == ["b"]
        path.unlink()
        with pytest.raises(ConfigError, match="there is no file"):
            await app.reload()
        assert list(app.health()) == ["b"]


async def test_without_a_file_and_a_new_config_nothing_changes() -> None:
    async with build_aggregator(config(a=lean())) as app:
        pid = pid_of(app, "a")
        await app.reload()
        assert pid_of(app, "a") == pid


async def test_a_config_that_is_taken_up_before_the_app_runs_is_the_one_that_runs() -> None:
    app = build_aggregator(config(a=lean()))
    await app.reload(config(b=lean()))
    async with app:
        assert list(app.health()) == ["b"]


async def test_of_several_at_once_the_last_counts(tmp_path: Path) -> None:
    record = tmp_path / "record"
    configs = [config(a=lean(name=str(number), record=str(record))) for number in range(5)]
    async with build_aggregator(configs[0]) as app:
        await asyncio.gather(*map(app.reload, configs[1:]), app.reload(config(b=lean())))
        assert list(app.health()) == ["b"]
        assert all(is_gone(int(pid)) for pid in record.read_text().split())
        await until(lambda: is_running(app, "b"))


async def test_a_server_sees_nothing_of_whoever_brought_the_new_config(monkeypatch: pytest.MonkeyPatch) -> None:
    caller: ContextVar[str] = ContextVar("caller", default="nobody")
    seen = []
    run = Child.run

    async def watched_run(child: Child) -> None:
        seen.append(caller.get())
        await run(child)

    async with build_aggregator(config(a=lean())) as app:
        monkeypatch.setattr(Child, "run", watched_run)
        caller.set("a client")
        await app.reload(config(b=lean()))
        await until(lambda: is_running(app, "b"))
    assert seen == ["nobody"]


# What clients are told.


async def test_clients_of_both_eras_hear_of_it_and_see_the_new_names_in_the_new_order() -> None:
    app = build_aggregator(config(a=lean(), b=lean()))
    async with app, connected(app) as legacy, connected(app, modern=True) as modern:
        modern.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await modern.heard("notifications/subscriptions/acknowledged")
        for client in (legacy, modern):
            assert await servers(client) == ["a", "b"]
        await app.reload(config(c=lean(), b=lean()))
        await until(lambda: is_running(app, "c"))
        for client in (legacy, modern):
            await client.heard(TOLD)
            assert await servers(client) == ["c", "b"]


async def test_clients_hear_of_another_order_and_of_nothing_when_nothing_changes() -> None:
    app = build_aggregator(config(a=lean(), b=lean()))
    async with app, connected(app) as client:
        told: list[frozenset[Any]] = []
        app._live_clients.lists_changed = told.append  # type: ignore[method-assign]
        await app.reload(config(a=lean(), b=lean()))
        assert [kinds for kinds in told if kinds] == []
        await app.reload(config(b=lean(), a=lean()))
        assert [sorted(kinds) for kinds in told if kinds] == [["tools"]]
        assert await servers(client) == ["b", "a"]


# Starts that fail, hang, or are not over.


async def test_a_server_that_does_not_start_after_a_reload_ends_nothing_with_strict_too() -> None:
    app = build_aggregator(config(a=lean()))
    async with app, connected(app) as client:
        await app.reload(config(a=lean(), b=MISSING))
        await until(lambda: app.health()["b"].state is ChildState.FAILED)
        assert await servers(client) == ["a"]


async def test_a_server_that_fails_after_a_reload_during_the_start_ends_nothing_either(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = lean(wait_for_file=str(gate))
    app = build_aggregator(config(slow=slow))
    async with app._lifespan_manager(), connected(app) as client:
        _, listing = client.begin("tools/list")
        await app.reload(config(slow=slow, bad=MISSING))
        await until(lambda: app.health()["bad"].state is ChildState.FAILED)
        gate.touch()
        assert "result" in await asyncio.wait_for(listing, PATIENCE)
        assert await servers(client) == ["slow"]


WITHOUT_VALUE = {"command": "x", "env": {"K": "${TEST_KEY_WITHOUT_VALUE}"}}


async def test_a_variable_without_a_value_after_a_reload_fails_that_server_alone() -> None:
    app = build_aggregator(config(a=lean(), b=lean()), strict=False)
    async with app, connected(app) as client:
        pid = pid_of(app, "a")
        await app.reload(config(a=lean(), b=WITHOUT_VALUE))
        await until(lambda: app.health()["b"].state is ChildState.FAILED)
        assert "TEST_KEY_WITHOUT_VALUE is not set" in (app.health()["b"].last_error or "")
        assert await servers(client) == ["a"]
        await app.reload(config(a=lean(), b=lean()))
        await until(lambda: is_running(app, "b"))
        assert pid_of(app, "a") == pid


async def test_without_strict_an_entry_that_is_wrong_now_stops_its_server_alone_until_it_is_right() -> None:
    entry = lean()
    app = build_aggregator(config(a=entry, b=entry), strict=False)
    async with app, connected(app) as client:
        pid = pid_of(app, "b")
        await app.reload(config(a={"comand": "x"}, b=entry))
        await until(lambda: app.health()["a"].state is ChildState.FAILED)
        assert "did you mean `command`?" in str(app.health()["a"].last_error)
        assert await client.call("b:echo", x=1)
        await app.reload(config(a=entry, b=entry))
        await until(lambda: is_running(app, "a"))
        assert pid_of(app, "b") == pid


async def test_with_strict_a_variable_without_a_value_in_a_new_config_changes_nothing() -> None:
    app = build_aggregator(config(a=lean()))
    async with app:
        with pytest.raises(ConfigError, match="TEST_KEY_WITHOUT_VALUE is not set"):
            await app.reload(config(a=lean(), b=WITHOUT_VALUE))
        assert list(app.health()) == ["a"]


async def test_names_that_meet_after_a_reload_end_nothing() -> None:
    app = build_aggregator(config(a=lean(name="first")), prefix=False)
    async with app, connected(app) as client:
        await app.reload(config(a=lean(name="first"), b=lean(name="second")))
        await until(lambda: is_running(app, "b"))
        assert (await client.call("echo"))["server"] == "first"


async def test_a_start_that_has_failed_is_mended_by_a_reload() -> None:
    app = build_aggregator(config(a=lean(), bad=MISSING))
    async with app._lifespan_manager(), connected(app) as client:
        assert "bad" in (await client.error("tools/list"))["message"]
        with pytest.raises(StartupError):
            await app._directory.ready()
        await app.reload(config(a=lean()))
        assert await servers(client) == ["a"]


async def test_a_server_that_hangs_at_its_start_can_be_replaced(tmp_path: Path) -> None:
    record = tmp_path / "record"
    hangs = lean(silent=True, record=str(record))
    app = build_aggregator(config(a=hangs, b=lean()), startup_timeout=3600.0)
    async with app._lifespan_manager(), connected(app) as client:
        _, listing = client.begin("tools/list")
        await until(lambda: record.exists() and record.read_text() and is_running(app, "b"))
        pid = pid_of(app, "b")
        await app.reload(config(a=lean(), b=lean()))
        assert is_gone(int(record.read_text()))
        assert "result" in await asyncio.wait_for(listing, PATIENCE)
        assert (await client.call("a:echo"))["tool"] == "echo"
        assert pid_of(app, "b") == pid


async def test_a_server_that_hangs_at_its_start_and_is_not_changed_goes_on_starting(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = lean(wait_for_file=str(gate))
    app = build_aggregator(config(slow=slow), strict=False, ready_wait=0.0)
    async with app, connected(app) as client:
        await until(lambda: app.health()["slow"].pid)
        pid = pid_of(app, "slow")
        await app.reload(config(slow=slow, b=lean()))
        assert (await client.call("b:echo"))["tool"] == "echo"
        gate.touch()
        assert (await client.call("slow:echo"))["tool"] == "echo"
        assert pid_of(app, "slow") == pid


async def test_a_call_to_a_server_that_is_replaced_waits_for_the_one_in_its_place() -> None:
    app = briefly(build_aggregator(config(a=lean(name="old", ignore_eof=True))))
    async with app, connected(app) as client:
        reloading = asyncio.create_task(app.reload(config(a=lean(name="new"))))
        await until(lambda: app.health()["a"].state is ChildState.INITIALIZING)
        assert (await client.call("a:echo"))["server"] == "new"
        await reloading


async def test_what_came_of_the_servers_of_a_new_config_can_be_waited_for(tmp_path: Path) -> None:
    never = str(tmp_path / "never")
    app = briefly(build_aggregator(config(a=lean(), slow=lean(wait_for_file=never)), strict=False, ready_wait=0.0))
    async with app:
        seen: list[ServerStatus] = []

        async def watch() -> None:
            async for status in app.settling():
                seen.append(status)

        watching = asyncio.create_task(watch())
        await until(lambda: seen)
        await app.reload(config(a=lean(), b=lean(), bad=MISSING))
        await asyncio.wait_for(watching, PATIENCE)
    assert [(status.server_key, status.state.value) for status in seen[:1]] == [("a", "running")]
    assert {(status.server_key, status.state.value) for status in seen[1:]} == {("b", "running"), ("bad", "failed")}


async def test_a_stop_during_a_reload_closes_the_old_and_the_new(tmp_path: Path, grace_over: asyncio.Event) -> None:
    record = tmp_path / "record"
    app = briefly(timed(build_aggregator(config(a=lean(ignore_eof=True), b=lean(ignore_eof=True))), PATIENT))
    async with app:
        old = [pid_of(app, key) for key in "ab"]
        new = lean(record=str(record), silent=True)
        reloading = asyncio.create_task(app.reload(config(a=lean(record=str(record)), c=new)))
        await until(lambda: record.exists() and record.read_text())
        assert not any(map(is_gone, old))
        asyncio.get_running_loop().call_soon(grace_over.set)
    await asyncio.wait_for(reloading, PATIENCE)
    pids = [*old, *map(int, record.read_text().split())]
    assert len(pids) == 3, "the one in the place of a server that was still being closed has not been started"
    assert all(map(is_gone, pids))
    assert app.health() == {}


async def test_whoever_gives_up_a_reload_leaves_nothing_half_done() -> None:
    app = briefly(build_aggregator(config(a=lean(ignore_eof=True))))
    async with app, connected(app) as client:
        old = pid_of(app, "a")
        reloading = asyncio.create_task(app.reload(config(a=lean(name="new"))))
        await until(lambda: app.health()["a"].state is ChildState.INITIALIZING)
        reloading.cancel()
        assert (await client.call("a:echo"))["server"] == "new"
        assert is_gone(old)


# Following the file.


class Reads:
    """Counts reads of a file, and fails the ones that are told to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.texts: list[str] = []

    async def __call__(self) -> None:
        self.texts.append(self._path.read_text() if self._path.exists() else "")


@asynccontextmanager
async def followed(path: Path, look_interval: float = 3600.0) -> AsyncIterator[Reads]:
    """By what the system tells alone, unless it is looked at more often."""
    reads = Reads(path)
    async with FollowedFiles([path], reads, look_interval=look_interval).following(watch=True):
        await until(lambda: reads.texts)
        yield reads


async def change_until_read(reads: Reads, change: Callable[[str], object], text: str) -> None:
    """Make a change; once more when it came before the watch began."""
    async with asyncio.timeout(PATIENCE):
        while text not in reads.texts:
            change(text)
            with suppress(TimeoutError):
                await asyncio.wait_for(until(lambda: text in reads.texts), 2.0)


@pytest.mark.parametrize("way", ["written", "renamed", "linked"])
async def test_a_file_that_is_written_renamed_or_linked_anew_is_read(way: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for number in (1, 2):
        (tmp_path / f"volume{number}").mkdir()
    if way == "linked":
        (tmp_path / "volume1" / "config.json").write_text("")
        (tmp_path / "data").symlink_to("volume1")
        path.symlink_to("data/config.json")
    else:
        path.write_text("")

    def change(text: str) -> None:
        if way == "written":
            path.write_text(text)
        elif way == "renamed":
            write(path, text)
        else:
            (tmp_path / "volume2" / "config.json").write_text(text)
            (tmp_path / "other").symlink_to("volume2")
            os.replace(tmp_path / "other", tmp_path / "data")

    async with followed(path) as reads:
        await change_until_read(reads, change, "second")


async def test_a_file_whose_folder_cannot_be_watched_is_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "config.json"
    shutil.rmtree(folder)
    async with followed(path, look_interval=0.01) as reads:
        await until(lambda: "cannot be watched" in caplog.text)
        folder.mkdir()
        path.write_text("back")
        await until(lambda: "back" in reads.texts)


async def test_what_goes_wrong_in_one_read_does_not_end_the_following(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    went = asyncio.Event()

    async def read() -> None:
        if not went.is_set():
            went.set()
            raise RuntimeError("a bug")
        done.set()

    done = asyncio.Event()
    file = FollowedFiles([tmp_path / "config.json"], read)
    async with file.following(watch=False):
        file.ask()
        await went.wait()
        file.ask()
        await asyncio.wait_for(done.wait(), PATIENCE)
    assert "unhandled exception while the config was reloaded" in caplog.text


async def test_a_bad_file_is_told_once_for_each_change_with_all_that_is_wrong_and_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "config.json"
    app = build_aggregator(write_config(path, a=lean()))

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    async with app, connected(app) as client, FollowedFiles([path], app.reload).following(watch=True):
        pid = pid_of(app, "a")
        write_config(path, a={"command": 1, "env": {"T": SECRET}}, b={"url": SECRET})
        await until(told)
        assert len(told()) == 1
        assert "the config in use is kept" in told()[0]
        assert "$.mcpServers.a.command" in told()[0]
        assert "$.mcpServers.b.url" in told()[0]
        write(path, "{")
        await until(lambda: len(told()) > 1)
        assert "is not valid JSON" in told()[1]
        assert (await servers(client), pid_of(app, "a")) == (["a"], pid)
        write_config(path, a=lean(), b=lean())
        await until(lambda: is_running(app, "b"))
        assert await servers(client) == ["a", "b"]
        assert pid_of(app, "a") == pid
        assert len(told()) == 2
        assert SECRET not in caplog.text


# The program.


@asynccontextmanager
async def served(path: str, *options: str, **environment: str) -> AsyncIterator[ServerProcess]:
    async with running(*PROGRAM, path, *options, env={**os.environ, **environment}) as server:
        yield server


async def test_a_program_follows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    async with served(write_config(path, a=lean())) as server:
        assert await servers(server.client) == ["a"]
        pid = await server.client.call("a:pid")
        write(path, "{")
        await server.said("the config in use is kept")
        write_config(path, b=lean(), bad=MISSING, a=lean())
        await server.client.heard(TOLD)
        while await servers(server.client) != ["b", "a"]:
            await server.client.heard(TOLD)
        assert await server.client.call("a:pid") == pid
        await server.said("server 'bad' failed during startup: command not found")
        write_config(path, b=MISSING, a=lean())
        await server.said("server 'b' failed during startup: command not found")
        assert await server.end() == 0
        assert "Traceback" not in server.stderr.decode()


async def test_a_program_reads_its_file_again_on_sighup(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    async with served(write_config(path, a=lean()), FASTMCP_AGGREGATOR_WATCH_CONFIG="false") as server:
        assert await servers(server.client) == ["a"]
        write_config(path, b=lean())
        server.process.send_signal(signal.SIGHUP)
        while await servers(server.client) != ["b"]:
            await server.client.heard(TOLD)
        server.process.send_signal(signal.SIGTERM)
        assert await server.wait() == 0


def test_a_program_whose_terminal_is_closed_ends(tmp_path: Path) -> None:
    record = tmp_path / "record"
    path = write_config(tmp_path / "config.json", a=lean(record=str(record)))
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [*PROGRAM, path, "--transport", "http", "--port", "0"])
    shown, code = b"", None
    try:
        while b"serving on" not in shown:
            shown += os.read(terminal, 65536)
        os.close(terminal)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    finally:
        if code is None:
            os.kill(process, signal.SIGKILL)
    assert code == 0
    assert is_gone(int(record.read_text()))
