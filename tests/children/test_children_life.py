"""A child's life inside the aggregator: start, failure, crash, return, end."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.harness import LEAN_CHILD, PATIENCE, SLOW_RETRIES, briefly, config, connected, lean, timed, until
from support.processes import is_gone, pids_in

from fastmcp_aggregator import (
    Aggregator,
    ChildState,
    ConfigError,
    NameConflictError,
    StartupError,
    build_aggregator,
    load_config,
)
from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.children.timings import Timings

pytestmark = pytest.mark.process

MISSING = {"command": "no-such-command-anywhere"}
QUICK_CHECKS = Timings(health_interval=0.1, health_deadline=1.0)


def state_of(app: Aggregator, key: str) -> ChildState:
    return app.health()[key].state


async def test_a_child_is_started_once_for_any_number_of_requests_and_clients(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    async with build_aggregator(config(a=lean(record=str(record)))) as app:
        for modern in (False, True):
            async with connected(app, modern=modern) as client:
                for _ in range(20):
                    await client.names()
                    await client.call("a:echo")
        assert len(pids_in(record)) == 1
        assert app.health()["a"].pid == pids_in(record)[0]
        assert app.health()["a"].restarts == 0
    assert is_gone(pids_in(record)[0])


async def test_a_strict_start_ends_after_all_have_settled_with_every_failure(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    document = config(
        missing=MISSING,
        good=lean(record=str(record)),
        leaves=lean(exit_at_start=3, stderr=[f"line {number}" for number in range(25)]),
    )
    with pytest.raises(StartupError) as caught:
        async with build_aggregator(document):
            pytest.fail("entered")
    first, second = caught.value.failures
    assert (first.server_key, first.phase) == ("missing", "startup")
    assert "command not found: 'no-such-command-anywhere'" in str(first)
    assert (second.server_key, second.phase) == ("leaves", "initialization")
    assert "it exited with code 3" in str(second)
    assert second.stderr_tail == tuple(f"line {number}" for number in range(5, 25))
    assert "line 24" in str(second)
    assert "--no-strict" in str(caught.value)
    assert is_gone(pids_in(record)[0])


async def test_the_log_has_what_a_server_wrote_to_stderr_once(caplog: pytest.LogCaptureFixture) -> None:
    document = config(leaves=lean(exit_at_start=3, stderr=["out of order", "bye"]))
    async with build_aggregator(document, strict=False):
        pass
    failures = [line for line in caplog.messages if "failed during" in line]
    assert failures
    assert all("it exited with code 3" in failure and "\n" not in failure for failure in failures)


async def test_without_strict_the_good_ones_serve_and_the_failed_one_says_what_is_wrong() -> None:
    document = config(missing=MISSING, good=lean())
    async with build_aggregator(document, strict=False) as app, connected(app) as client:
        assert {name.split(":")[0] for name in await client.names()} == {"good"}
        status = app.health()["missing"]
        assert status.state in (ChildState.FAILED, ChildState.INITIALIZING)  # it is tried again by and by
        assert "command not found" in (status.last_error or "")
        for name in ("missing:anything", "missing__anything"):
            error = await client.error("tools/call", {"name": name})
            assert error["code"] == -32000
            assert error["message"].startswith("server 'missing': it is unavailable (command not found")
            assert error["data"]["phase"] == "startup"  # when the server failed, not when it was called
        assert (await client.error("tools/call", {"name": "missin:anything"}))["code"] == -32602


async def test_a_command_line_in_place_of_a_command_is_told_where_its_arguments_belong() -> None:
    with pytest.raises(StartupError) as caught:
        async with build_aggregator(config(a={"command": "sh server-none"})):
            pass
    assert "; arguments belong into `args`, each as a string of its own" in str(caught.value)


async def test_a_hanging_child_is_given_up_at_its_deadline_and_its_process_ended(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    document = config(hangs=lean(silent=True, record=str(record)))
    with pytest.raises(StartupError) as caught:
        async with briefly(build_aggregator(document, servers={"hangs": {"startup_timeout": 0.3}})):
            pytest.fail("entered")
    failure = caught.value.failures[0]
    assert "did not initialize within 0.3 s" in str(failure)
    assert all(is_gone(pid) for pid in (pids_in(record) if record.exists() else []))  # it may have had no time to begin


async def test_a_first_start_that_takes_too_long_says_that_it_downloads(tmp_path: Path) -> None:
    npx = tmp_path / "npx"
    npx.write_text("#!/bin/sh\nexec sleep 60\n")
    npx.chmod(0o755)
    app = briefly(build_aggregator(config(a={"command": str(npx)}), strict=False, startup_timeout=0.3))
    async with app:
        await until(lambda: app.health()["a"].last_error)
        assert "the first start with npx downloads the package" in (app.health()["a"].last_error or "")


async def test_lists_do_not_wait_longer_than_ready_wait_and_calls_only_for_their_own_child(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    document = config(slow=lean(wait_for_file=str(gate)), quick=lean())
    app = build_aggregator(document, strict=False, ready_wait=0.2)
    async with app, connected(app) as client:
        await until(lambda: state_of(app, "quick") is ChildState.RUNNING)
        assert {name.split(":")[0] for name in await client.names()} == {"quick"}
        _, late = client.begin("tools/call", {"name": "slow:echo"})
        assert (await client.call("quick:echo"))["tool"] == "echo"
        assert not late.done()
        gate.touch()
        assert "result" in await asyncio.wait_for(late, PATIENCE)
        await client.heard("notifications/tools/list_changed")
        assert {name.split(":")[0] for name in await client.names()} == {"slow", "quick"}


async def test_a_server_that_was_waited_for_in_vain_does_not_delay_the_lists_of_the_next_start(tmp_path: Path) -> None:
    document = config(hanging=lean(wait_for_file=str(tmp_path / "never")), quick=lean())
    first = briefly(build_aggregator(document, strict=False, ready_wait=0.2, catalogue="on"))
    async with first, connected(first) as client:
        await until(lambda: state_of(first, "quick") is ChildState.RUNNING)
        await client.names()
    assert first._backend._catalogues is not None
    assert first._backend._catalogues.flush(PATIENCE)
    again = briefly(build_aggregator(document, strict=False, ready_wait=10_000, catalogue="on"))
    async with again, connected(again) as client:
        assert {name.split(":")[0] for name in await asyncio.wait_for(client.names(), PATIENCE)} == {"quick"}


async def test_in_strict_mode_the_first_list_waits_for_all(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    app = build_aggregator(config(slow=lean(wait_for_file=str(gate)), quick=lean()), ready_wait=0.0)
    async with app._lifespan_manager(), connected(app) as client:
        _, listing = client.begin("tools/list")
        await until(lambda: state_of(app, "quick") is ChildState.RUNNING)
        assert not listing.done()
        gate.touch()
        tools = (await asyncio.wait_for(listing, PATIENCE))["result"]["tools"]
    assert {tool["name"].split(":")[0] for tool in tools} == {"slow", "quick"}


async def test_a_crash_fails_the_calls_in_flight_names_the_server_and_the_child_comes_back() -> None:
    async with build_aggregator(config(a=lean(), b=lean(era="modern"))) as app, connected(app) as client:
        _, held = client.begin("tools/call", {"name": "a:hold"})
        await until(lambda: app.health()["a"].in_flight == 1)
        old_pid = app.health()["a"].pid
        client.begin("tools/call", {"name": "a:leave", "arguments": {"code": 7}})
        error = (await asyncio.wait_for(held, PATIENCE))["error"]
        assert error["code"] == -32000
        why = "it exited with code 7 (stderr: leaving) while it was answering tools/call"
        assert error["message"] == f"server 'a': {why}"
        assert error["data"]["server"] == "a"
        assert (await client.call("b:echo"))["server"] == "lean"
        await client.heard("notifications/tools/list_changed")
        await until(lambda: state_of(app, "a") is ChildState.RUNNING)
        assert app.health()["a"].restarts >= 1
        assert app.health()["a"].pid != old_pid
        assert (await client.call("a:echo"))["tool"] == "echo"


async def test_a_child_that_is_killed_fails_exactly_its_own_calls() -> None:
    async with build_aggregator(config(a=lean(), b=lean(era="modern"))) as app, connected(app) as client:
        calls = {
            key: [client.begin("tools/call", {"name": f"{key}:hold", "arguments": {"n": n}})[1] for n in range(5)]
            for key in ("a", "b")
        }
        await until(lambda: [status.in_flight for status in app.health().values()] == [5, 5])
        os.kill(app.health()["a"].pid or 0, signal.SIGKILL)
        for answer in await asyncio.wait_for(asyncio.gather(*calls["a"]), PATIENCE):
            why = "it was ended by signal SIGKILL while it was answering tools/call"
            assert answer["error"]["message"] == f"server 'a': {why}"
        assert not any(call.done() for call in calls["b"])
        assert await client.call("b:release") == {"released": 5}
        for n, answer in enumerate(await asyncio.wait_for(asyncio.gather(*calls["b"]), PATIENCE)):
            assert json.loads(answer["result"]["content"][0]["text"])["held"] == {"n": n}
        assert (await client.call("a:echo"))["tool"] == "echo"


async def test_while_a_child_is_down_its_components_are_unlisted_and_calls_say_why(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken"
    document = config(a=lean(exit_if_file=str(broken)), b=lean())
    async with timed(build_aggregator(document), SLOW_RETRIES) as app, connected(app) as client:
        broken.touch()
        os.kill(app.health()["a"].pid or 0, signal.SIGKILL)
        await until(lambda: state_of(app, "a") is ChildState.FAILED)
        assert app.health()["a"].last_error == "it was ended by signal SIGKILL"
        assert {name.split(":")[0] for name in await client.names()} == {"b"}
        error = await client.error("tools/call", {"name": "a:echo"})
        assert error["message"].startswith("server 'a': it is unavailable (it exited with code 9), next try in 36")
        assert error["data"]["retryIn"] > 3000
        assert app.health()["a"].pid is None
        unknown = await client.error("tools/call", {"name": "a:ecko"})
        assert "a:echo" not in unknown["message"]


async def test_a_call_to_a_child_that_waits_for_its_next_attempt_brings_it_forward() -> None:
    async with timed(build_aggregator(config(a=lean())), SLOW_RETRIES) as app, connected(app) as client:
        os.kill(app.health()["a"].pid or 0, signal.SIGKILL)
        await until(lambda: state_of(app, "a") is ChildState.FAILED)
        assert (await client.call("a:echo"))["tool"] == "echo"
        assert app.health()["a"].restarts == 1


async def test_a_child_that_has_served_is_back_at_once_however_often_it_is_killed() -> None:
    times = replace(SLOW_RETRIES, served_after=0.0)
    async with timed(build_aggregator(config(a=lean())), times) as app:
        for kills in range(1, 2 * times.crash_loop + 1):
            os.kill(app.health()["a"].pid or 0, signal.SIGKILL)
            await until(lambda: app.health()["a"].restarts == kills)  # noqa: B023
            await until(lambda: state_of(app, "a") is ChildState.RUNNING)


async def test_a_child_that_crashes_again_and_again_is_left_alone_but_for_a_call_every_ten_seconds(
    tmp_path: Path,
) -> None:
    record, broken = tmp_path / "pids", tmp_path / "broken"
    broken.touch()
    document = config(a=lean(record=str(record), exit_if_file=str(broken)))
    at = 0.0
    times = Timings(jitter=lambda: 0.0, clock=lambda: at)
    async with timed(build_aggregator(document, strict=False), times) as app, connected(app) as client:
        child = app.children["a"]
        await until(lambda: child._retry.backoff.is_crash_loop)
        assert app.health()["a"].retry_in == times.crash_loop_delay
        assert len(pids_in(record)) == 5
        error = await client.error("tools/call", {"name": "a:echo"})
        assert error["data"]["retryIn"] == times.crash_loop_pause
        assert len(pids_in(record)) == 5
        broken.unlink()
        at = times.crash_loop_pause
        assert (await client.call("a:echo"))["tool"] == "echo"


async def test_a_command_that_is_installed_later_is_there_for_the_next_call(tmp_path: Path) -> None:
    server, command = lean(), tmp_path / "later"
    document = config(a={**server, "command": str(command)})
    async with timed(build_aggregator(document, strict=False), SLOW_RETRIES) as app, connected(app) as client:
        for _ in range(SLOW_RETRIES.crash_loop + 1):
            await client.error("tools/call", {"name": "a:echo"})
        command.symlink_to(server["command"])
        assert (await client.call("a:echo"))["tool"] == "echo"
        assert app.health()["a"].restarts > SLOW_RETRIES.crash_loop


async def test_a_frozen_child_is_found_by_the_health_check_and_replaced() -> None:
    hub = briefly(timed(build_aggregator(config(a=lean(), b=lean(era="modern"))), QUICK_CHECKS))
    async with hub as app, connected(app) as client:
        frozen = {key: app.health()[key].pid or 0 for key in ("a", "b")}
        for pid in frozen.values():
            os.kill(pid, signal.SIGSTOP)
        await until(lambda: all(status.restarts for status in app.health().values()))
        await until(lambda: all(status.state is ChildState.RUNNING for status in app.health().values()))
        assert (await client.call("a:echo"))["tool"] == "echo"
        assert all(is_gone(pid) for pid in frozen.values())


async def test_calls_to_a_frozen_child_fail_at_their_deadline_and_it_is_replaced() -> None:
    async with (
        briefly(
            timed(build_aggregator(config(a=lean(prompts=[{"name": "greet"}])), call_timeout=0.5), QUICK_CHECKS)
        ) as app,
        connected(app) as client,
    ):
        frozen = app.health()["a"].pid or 0
        held = client.begin("tools/call", {"name": "a:hold"})[1]
        await until(lambda: app.health()["a"].in_flight == 1)
        os.kill(frozen, signal.SIGSTOP)
        error = (await asyncio.wait_for(held, PATIENCE))["error"]
        assert error["message"] == "server 'a': it did not answer tools/call within 0.5 s"
        await until(lambda: app.health()["a"].restarts and state_of(app, "a") is ChildState.RUNNING)
        assert is_gone(frozen)
        assert await client.result("prompts/get", {"name": "a:greet"})


async def test_a_healthy_idle_child_and_a_busy_one_are_left_alone_by_the_health_check() -> None:
    times = Timings(health_interval=0.02, health_deadline=PATIENCE)
    hub = timed(build_aggregator(config(a=lean(), b=lean(era="modern"))), times)
    async with hub as app, connected(app) as client:
        answers = [app.children[key].calls for key in ("a", "b")]
        seen = [calls.last_answer for calls in answers]
        await until(lambda: all(calls.last_answer > before for calls, before in zip(answers, seen, strict=True)))
        assert [status.restarts for status in app.health().values()] == [0, 0]
        assert (await client.call("a:echo"))["tool"] == "echo"


async def test_a_child_that_closes_its_stdout_but_lives_on_is_ended_and_restarted(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    program = (
        "import os, sys, signal\n"
        f"open({str(record)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "if len(open(sys.argv[1]).read().split()) == 1:\n"
        "    os.close(1); signal.pause()\n"
        f"sys.argv = ['x', '{{}}']; exec(open({str(LEAN_CHILD)!r}).read())\n"
    )
    document = config(a={"command": sys.executable, "args": ["-S", "-c", program, str(record)]})
    async with briefly(build_aggregator(document, strict=False)) as app:
        await until(lambda: state_of(app, "a") is ChildState.RUNNING)
        assert len(pids_in(record)) == 2
        await until(lambda: is_gone(pids_in(record)[0]))


async def test_junk_on_stdout_is_ignored() -> None:
    document = config(a=lean(stdout=["hello", "{not json}", "\x00\x01", '{"jsonrpc": "2.0"}', "[]", ""]))
    async with build_aggregator(document) as app, connected(app) as client:
        assert (await client.call("a:echo"))["tool"] == "echo"


async def test_a_flood_on_stderr_does_not_stop_a_child(capfd: Any) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app) as client:
        assert await client.call("a:flood", lines=5000) == {"flooded": 5000}
        assert (await client.call("a:echo"))["tool"] == "echo"
    assert "[a] xxx" in capfd.readouterr().err


async def test_an_answer_that_does_not_come_is_an_error_at_the_deadline() -> None:
    document = config(a=lean(prompts=[{"name": "greet"}]))
    app = build_aggregator(document, servers={"a": {"call_timeout": 0.2}})
    async with app, connected(app) as client:
        error = await client.error("tools/call", {"name": "a:hold"})
        assert error["message"] == "server 'a': it did not answer tools/call within 0.2 s"
        assert await client.result("prompts/get", {"name": "a:greet"})


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_childs_changed_list_is_read_again_and_reaches_clients_of_both_eras(era: str) -> None:
    async with (
        build_aggregator(config(a=lean(era=era))) as app,
        connected(app) as legacy,
        connected(app, modern=True) as modern,
    ):
        modern.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await modern.heard("notifications/subscriptions/acknowledged")
        await legacy.call("a:add_tool", name="fresh")
        for client in (legacy, modern):
            await client.heard("notifications/tools/list_changed")
            assert "a:fresh" in await client.names()
        assert (await legacy.call("a:fresh"))["tool"] == "fresh"
        await legacy.call("a:remove_tool", name="fresh")
        for client in (legacy, modern):
            await client.heard("notifications/tools/list_changed")
            assert "a:fresh" not in await client.names()


async def test_a_modern_client_hears_only_what_it_asked_for() -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app, modern=True) as client:
        client.begin("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        await client.heard("notifications/subscriptions/acknowledged")
        version = app.children["a"].catalogue.version  # type: ignore[union-attr]
        await client.call("a:add_tool", name="fresh")
        await until(lambda: app.children["a"].catalogue.version > version)  # type: ignore[union-attr]
        assert "a:fresh" in await client.names()
        assert [n["method"] for n in client.notifications] == []


async def test_two_children_that_offer_one_name_without_prefix_are_a_start_up_error_that_names_both() -> None:
    with pytest.raises(StartupError) as caught:
        async with build_aggregator(config(a=lean(), b=lean()), prefix=False):
            pytest.fail("entered")
    conflict = caught.value.failures[0]
    assert isinstance(conflict, NameConflictError)
    assert "'a' and 'b' both offer 'echo'" in str(conflict)


async def test_without_strict_the_first_of_two_conflicting_children_has_the_name() -> None:
    app = build_aggregator(config(a=lean(name="first"), b=lean(name="second")), prefix=False, strict=False)
    async with app, connected(app) as client:
        names = await client.names()
        assert len(names) == len(set(names))
        assert (await client.call("echo"))["server"] == "first"
        assert (await client.call("b:echo"))["server"] == "second"


async def test_without_prefixes_a_name_is_nobody_elses_while_a_server_before_has_not_been_listed() -> None:
    entries = config(first=lean(exit_at_start=1), second=lean(name="second"))
    app = build_aggregator(entries, prefix=False, strict=False)
    async with app, connected(app) as client:
        await until(lambda: app.children["first"].last_failure and app.children["second"].catalogue)
        assert await client.names() == []
        error = await client.error("tools/call", {"name": "echo"})
        assert "server 'first'" in error["message"]
        assert (await client.call("second:echo"))["server"] == "second"


async def test_without_prefixes_a_server_that_has_not_been_listed_takes_no_name_from_one_before() -> None:
    entries = config(first=lean(name="first"), second=lean(exit_at_start=1))
    app = build_aggregator(entries, prefix=False, strict=False)
    async with app, connected(app) as client:
        assert (await client.call("echo"))["server"] == "first"
        assert "echo" in await client.names()


async def test_children_are_closed_in_parallel_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None has to end before the last has been told to."""
    records = [tmp_path / str(i) for i in range(5)]
    entries = {f"s{i}": lean(record=str(record), ignore_eof=True) for i, record in enumerate(records)}
    told, all_told, exits_within = set[int](), asyncio.Event(), ChildProcess._exits_within

    async def when_all_are_told(process: ChildProcess, seconds: float) -> bool:
        told.add(process.pid)
        if len(told) == len(records):
            all_told.set()
        await all_told.wait()
        return await exits_within(process, seconds)

    async with briefly(timed(build_aggregator(config(**entries)), Timings(stop_bound=3600.0))):
        started = [pids_in(record)[0] for record in records]
        monkeypatch.setattr(ChildProcess, "_exits_within", when_all_are_told)
    assert told == set(started)
    assert all(is_gone(pid) for pid in started)


async def test_a_stop_during_the_start_does_not_wait_for_a_hanging_child(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    app = briefly(build_aggregator(config(hangs=lean(silent=True, record=str(record))), startup_timeout=3600.0))
    async with app._lifespan_manager():
        await until(record.exists)
        await until(lambda: pids_in(record))
    assert is_gone(pids_in(record)[0])


@pytest.mark.parametrize("turns", range(12))
async def test_a_stop_at_any_turn_of_the_start_closes_the_child_at_once(turns: int, tmp_path: Path) -> None:
    record = tmp_path / "pids"
    app = build_aggregator(config(a=lean(record=str(record))))
    async with app._lifespan_manager():
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks = list(app._backend.runtime.supervisor._tasks.values())  # type: ignore[union-attr]
    assert [task.cancelled() for task in tasks] == [False]
    assert all(is_gone(pid) for pid in (pids_in(record) if record.exists() else []))


async def test_an_app_can_be_entered_again_after_it_has_ended() -> None:
    app = build_aggregator(config(a=lean()))
    for _ in range(2):
        async with app, connected(app) as client:
            assert (await client.call("a:echo"))["tool"] == "echo"
    assert app.health() == {}


async def test_a_childs_environment_is_the_safe_variables_and_its_own(monkeypatch: Any) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "s3cret")
    entry = lean() | {"env": {"OWN": "${SECRET_OF_OURS}", "PLAIN": "x"}}
    async with build_aggregator(config(a=entry)) as app, connected(app) as client:
        environment = await client.call("a:environment")
    assert environment["OWN"] == "s3cret"
    assert environment["PLAIN"] == "x"
    assert environment.keys() <= {"OWN", "PLAIN", "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}


async def test_an_entry_of_the_wrong_era_setting_fails_instead_of_hanging() -> None:
    app = build_aggregator(config(a=lean(era="legacy")), servers={"a": {"era": "legacy"}})
    async with app:
        assert app.health()["a"].protocol_version == "2025-11-25"
    with pytest.raises(StartupError):
        async with build_aggregator(config(a=lean(era="modern")), servers={"a": {"era": "legacy"}}):
            pytest.fail("entered")
    with pytest.raises(StartupError, match="it speaks MCP 2025-11-25, and nothing later; remove its setting `era`"):
        async with build_aggregator(config(a=lean(era="legacy")), servers={"a": {"era": "modern"}}):
            pytest.fail("entered")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_child_whose_era_is_set_is_known_as_well_as_any_other(era: str) -> None:
    document = config(a=lean(era=era, instructions="Be kind."))
    app = build_aggregator(document, servers={"a": {"era": era}})
    async with app, connected(app) as client:
        assert "Be kind." in client.introduction["instructions"]
        await client.call("a:add_tool", name="fresh")
        await client.heard("notifications/tools/list_changed")
        assert "a:fresh" in await client.names()


# A config in which a variable has no value.


WITHOUT_VALUE = {"command": "x", "env": {"K": "${TEST_KEY_WITHOUT_VALUE}", "S": "hunter2"}}
REASON = "the environment variable TEST_KEY_WITHOUT_VALUE is not set"


async def test_a_server_whose_variable_has_no_value_fails_alone_and_is_not_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = build_aggregator(
        config(good=lean(), bad=WITHOUT_VALUE, far={"url": "http://$TEST_KEY_WITHOUT_VALUE"}), strict=False
    )
    async with app, connected(app) as client:
        assert {name.split(":")[0] for name in await client.names()} == {"good"}
        for key in ("bad", "far"):
            error = await client.error("tools/call", {"name": f"{key}:echo"})
            assert error["message"].startswith(f"server '{key}': it is unavailable: {REASON}, which `")
            assert "next try" not in error["message"]
            status = app.health()[key]
            assert (status.state, status.retry_in, status.restarts) == (ChildState.FAILED, None, 0)
            assert (status.last_error or "").startswith(REASON)
            assert "TEST_KEY" not in (status.public_error or "TEST_KEY")
    assert len([line for line in caplog.messages if REASON in line]) == 2
    assert "hunter2" not in caplog.text


def test_with_strict_a_variable_without_a_value_is_refused_with_all_others() -> None:
    document = config(good=lean(), bad=WITHOUT_VALUE, far={"url": "http://$TEST_KEY_WITHOUT_VALUE"})
    for source in (document, load_config(document, strict=False)):
        with pytest.raises(ConfigError) as caught:
            build_aggregator(source)
        assert [problem.code for problem in caught.value.details] == ["missing_env_var"] * 2
