"""A wall clock that jumps, as when a laptop wakes up or the time is set: nothing is timed by it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.harness import PATIENCE, ServerProcess, config, lean, running, until
from support.usual import USUAL

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

HOURS = [48, -48]
FAILED = b"server 'b' failed"
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
    """The wall clock of the program."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hours = 0
        path.write_text("0")

    def jump(self, hours: int) -> None:
        self._hours += hours
        self.path.with_suffix(".new").write_text(str(self._hours))
        self.path.with_suffix(".new").replace(self.path)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock") / "hours")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(clock: Clock) -> AsyncIterator[ServerProcess]:
    """The program with this clock; calls of the server `a` have a short deadline."""
    document = clock.path.with_name("mcp.json")
    document.write_text(json.dumps(config(a=lean(), b=lean(era="modern"))))
    own = {"FASTMCP_AGGREGATOR_SERVERS": '{"a": {"call_timeout": 1}}', "XDG_CACHE_HOME": str(document.parent)}
    env = {**os.environ, **USUAL, **own}
    async with running(sys.executable, "-c", PROGRAM, str(clock.path), str(document), env=env) as server:
        await server.client.names()
        yield server
        assert await server.end() == 0


@pytest.mark.parametrize("hours", HOURS)
async def test_a_call_goes_on_when_the_clock_jumps(
    hours: int, server: ServerProcess, clock: Clock, tmp_path: Path
) -> None:
    gate, client = tmp_path / "gate", server.client
    _, answer = client.begin("tools/call", {"name": "b:wait", "arguments": {"file": str(gate)}})
    assert (await client.call("a:echo"))["tool"] == "echo"
    clock.jump(hours)
    assert (await client.call("a:echo"))["tool"] == "echo"
    assert not answer.done()
    gate.touch()
    assert "result" in await asyncio.wait_for(answer, PATIENCE)


@pytest.mark.parametrize("hours", HOURS)
async def test_a_deadline_holds_when_the_clock_jumps(hours: int, server: ServerProcess, clock: Clock) -> None:
    client = server.client
    _, answer = client.begin("tools/call", {"name": "a:hold"})
    assert (await client.call("b:echo"))["tool"] == "echo"
    clock.jump(hours)
    error = (await asyncio.wait_for(answer, PATIENCE))["error"]
    assert error["message"] == "server 'a': it did not answer tools/call within 1 s"


@pytest.mark.parametrize("hours", HOURS)
async def test_a_server_is_started_again_when_the_clock_has_jumped(
    hours: int, server: ServerProcess, clock: Clock
) -> None:
    client, failures = server.client, server.stderr.count(FAILED)
    pid = (await client.call("b:pid"))["pid"]
    clock.jump(hours)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: server.stderr.count(FAILED) > failures)
    assert (await client.call("b:pid"))["pid"] != pid
