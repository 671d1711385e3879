"""The Job Object of a child process on Windows, as far as it can be tested elsewhere.

What the SDK's helpers do on Windows is not tested here: only that they are what `children/process_groups/windows.py`
takes them for, and that a process without a process group is started, used and ended by that file alone.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from typing import Any

import psutil
import pytest
from mcp.os.win32 import utilities
from support.harness import PATIENCE, lean, until

from fastmcp_aggregator.children.process import process as process_module
from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.children.process_groups.windows import JobObject
from fastmcp_aggregator.config import StdioServer

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="these stand in for tests on Windows"),
    pytest.mark.process,
]


@pytest.fixture
def _as_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children get a job, and touching process groups is a failure."""
    monkeypatch.setattr(process_module, "Group", JobObject)
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("a process group was signalled"))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The ids of the processes that have a job; the jobs hold nothing."""
    having: set[int] = set()
    monkeypatch.setattr(utilities, "_create_job_object", lambda: "job")
    monkeypatch.setattr(utilities, "_maybe_assign_process_to_job", lambda process, job: having.add(process.pid))
    monkeypatch.setattr(utilities, "close_process_job", lambda process: having.discard(process.pid))
    return having


async def spawn(**options: Any) -> ChildProcess:
    entry = lean(**options)
    server = StdioServer(key="lean", label="lean", command=entry["command"], args=tuple(entry["args"]))
    return await ChildProcess.spawn(server)


# The SDK's side.


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_create_job_object", []),
        ("_maybe_assign_process_to_job", ["process", "job"]),
        ("close_process_job", ["process"]),
        ("get_windows_executable_command", ["command"]),
    ],
)
def test_the_helpers_of_the_sdk_are_plain_functions_with_these_parameters(name: str, parameters: list[str]) -> None:
    helper = getattr(utilities, name)
    assert list(inspect.signature(helper).parameters) == parameters
    assert not inspect.iscoroutinefunction(helper)


def test_the_sdk_looks_at_nothing_of_a_process_but_its_id_and_keeps_its_job_by_it() -> None:
    code = inspect.getsource(utilities._maybe_assign_process_to_job)
    assert "_process_jobs[process] = job" in code
    assert "process.pid" in code
    assert code.count("process.") == code.count("process.pid")
    assert "_process_jobs.pop(process, None)" in inspect.getsource(utilities.close_process_job)


def test_a_job_ends_everything_in_it_when_it_is_closed() -> None:
    assert "JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE" in inspect.getsource(utilities._create_job_object)


def test_elsewhere_the_helpers_do_nothing() -> None:
    assert utilities._create_job_object() is None


# Our side.


@pytest.mark.usefixtures("_as_on_windows")
async def test_a_child_without_a_process_group_is_served_and_ends_politely() -> None:
    process = await spawn()
    lines: list[bytes] = []
    process.attach(lines.extend, lambda: None)
    assert os.getpgid(process.pid) == os.getpgid(0)
    process.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert b'"result"' in (await until(lambda: lines))[0]
    await asyncio.wait_for(process.stop(), PATIENCE)
    assert process.returncode == 0


@pytest.mark.usefixtures("_as_on_windows")
async def test_a_child_that_does_not_leave_is_ended_by_force_even_if_it_has_no_job() -> None:
    process = await spawn(ignore_eof=True)
    process.attach(lambda _: None, lambda: None)
    await asyncio.wait_for(process.stop(), PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)


@pytest.mark.usefixtures("_as_on_windows")
async def test_a_child_has_a_job_from_its_start_to_its_end(jobs: set[int]) -> None:
    process = await spawn()
    process.attach(lambda _: None, lambda: None)
    assert jobs == {process.pid}
    await asyncio.wait_for(process.stop(), PATIENCE)
    assert jobs == set()


@pytest.mark.usefixtures("_as_on_windows")
async def test_the_job_of_a_child_that_crashed_is_closed_and_with_it_what_the_child_has_started(jobs: set[int]) -> None:
    process = await spawn()
    process.attach(lambda _: None, lambda: None)
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: not jobs)
    await process.stop()


def test_a_command_is_looked_up_by_the_sdk_which_finds_scripts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilities, "get_windows_executable_command", {"npx": r"C:\node\npx.cmd"}.__getitem__)
    assert JobObject.launching("npx", ["-y", "x"], {}, None)[0] == [r"C:\node\npx.cmd", "-y", "x"]
