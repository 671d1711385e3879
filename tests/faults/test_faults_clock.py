"""A wall clock that jumps, as when a laptop wakes up or the time is set: nothing is timed by it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.harness import PATIENCE, ServerProcess, config, lean, running

pytestmark = pytest.mark.process

HOURS = [48, -48]
PROGRAM = """
import sys, time
jump = sys.argv.pop(1)
time_, time_ns = time.time, time.time_ns
def hours():
    with open(jump) as file:
        return int(file.read())
time.time = lambda: time_() + hours() * 3600
time.time_ns = lambda: time_ns() + hours() * 3600 * 10**9
from fastmcp_aggregator.cli.main import main
sys.exit(main())
"""


class Clock:
    """The wall clock of a program."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text("0")

    def jump(self, hours: int) -> None:
        self.path.with_suffix(".new").write_text(str(hours))
        self.path.with_suffix(".new").replace(self.path)


@asynccontextmanager
async def timed(folder: Path, **of_a: float) -> AsyncIterator[tuple[ServerProcess, Clock]]:
    """The program with a clock that can jump; the server `a` has these settings."""
    clock, document = Clock(folder / "hours"), folder / "mcp.json"
    document.write_text(json.dumps(config(a=lean(), b=lean(era="modern"))))
    env = {**os.environ, "FASTMCP_AGGREGATOR_SERVERS": json.dumps({"a": of_a})}
    async with running(sys.executable, "-c", PROGRAM, str(clock.path), str(document), env=env) as server:
        await server.client.names()
        yield server, clock
        assert await server.end() == 0


@pytest.mark.parametrize("hours", HOURS)
async def test_a_call_goes_on_when_the_clock_jumps(hours: int, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with timed(tmp_path) as (server, clock):
        client = server.client
        _, answer = client.begin("tools/call", {"name": "b:wait", "arguments": {"file": str(gate)}})
        assert (await client.call("a:echo"))["tool"] == "echo"
        clock.jump(hours)
        assert (await client.call("a:echo"))["tool"] == "echo"
        assert not answer.done()
        gate.touch()
        assert "result" in await asyncio.wait_for(answer, PATIENCE)


@pytest.mark.parametrize("hours", HOURS)
async def test_a_deadline_holds_when_the_clock_jumps(hours: int, tmp_path: Path) -> None:
    async with timed(tmp_path, call_timeout=1) as (server, clock):
        client = server.client
        _, answer = client.begin("tools/call", {"name": "a:hold"})
        assert (await client.call("b:echo"))["tool"] == "echo"
        clock.jump(hours)
        error = (await asyncio.wait_for(answer, PATIENCE))["error"]
        assert error["message"] == "server 'a': it did not answer tools/call within 1 s"


@pytest.mark.parametrize("hours", HOURS)
async def test_a_server_is_started_again_when_the_clock_has_jumped(hours: int, tmp_path: Path) -> None:
    async with timed(tmp_path) as (server, clock):
        client = server.client
        pid = (await client.call("b:pid"))["pid"]
        clock.jump(hours)
        os.kill(pid, signal.SIGKILL)
        await server.said("server 'b' failed")
        assert (await client.call("b:pid"))["pid"] != pid
