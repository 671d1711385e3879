"""How the program hears that a child's process has ended."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest
from support.harness import lean

from fastmcp_aggregator.children.process.child_watcher import watched_by_descriptor
from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.cli.running.starting import run_to_end
from fastmcp_aggregator.config import StdioServer

pytestmark = pytest.mark.process


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors of processes are Linux's")
def test_no_thread_waits_for_a_process_and_its_end_is_heard() -> None:
    entry = lean()
    server = StdioServer(key="a", label="a", command=entry["command"], args=tuple(entry["args"]))
    before, threads = set(threading.enumerate()), list[str]()

    async def work() -> int:
        process = await ChildProcess.spawn(server)
        threads.extend(thread.name for thread in threading.enumerate() if thread not in before)
        os.kill(process.pid, 9)
        await process.exited.wait()
        await process.stop()
        assert process.returncode is not None
        return -process.returncode

    assert run_to_end(work(), exit_code_on_signal=None) == 9
    assert not [name for name in threads if "waitpid" in name]


async def test_the_loops_of_others_hear_of_it_as_before() -> None:
    before = type(asyncio.get_event_loop_policy().get_child_watcher())
    with watched_by_descriptor():
        pass
    assert type(asyncio.get_event_loop_policy().get_child_watcher()) is before
    process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "pass")
    assert await process.wait() == 0
