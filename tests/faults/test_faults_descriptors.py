"""What happens when file descriptors are few, or run out."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from support.harness import LEAN_CHILD, PATIENCE, config, free_port, lean, running

from fastmcp_aggregator import ConfigError, build_aggregator, load_config, load_settings
from fastmcp_aggregator import file_descriptors as descriptors
from fastmcp_aggregator.file_descriptors import OWN, PER_PROCESS, PER_REMOTE, descriptors_needed

pytestmark = pytest.mark.process

resource = pytest.importorskip("resource", reason="there is no such limit on Windows")

PROGRAM = [sys.executable, "-m", "fastmcp_aggregator"]
FEW_CLIENTS = {"FASTMCP_AGGREGATOR_MAX_CONCURRENT_REQUESTS": "4", "FASTMCP_AGGREGATOR_MAX_WAITING_REQUESTS": "4"}
ENOUGH = OWN + PER_PROCESS + 10
"""For one process and so few clients, and the quarter more that is kept for others."""


def limited(soft: int, hard: int | None = None) -> Callable[[], None]:
    """What a subprocess does first, to have so few descriptors."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard or soft))


def write(folder: Path, **servers: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config(**servers)))
    return str(path)


# At the start.


def test_what_is_needed_grows_with_the_servers_and_with_the_clients() -> None:
    settings = load_settings(max_concurrent_calls=20, servers={"far": {"max_concurrent_calls": 30}})
    servers = {
        "near": {"command": "x"},
        "far": {"url": "http://127.0.0.1:1/mcp"},
        "farther": {"url": "http://127.0.0.1:2/mcp"},
    }
    document = load_config(config(**servers))
    assert descriptors_needed(load_config(config()), settings) == OWN
    assert descriptors_needed(load_config(config(near=servers["near"])), settings) == OWN + PER_PROCESS
    assert descriptors_needed(document, settings) == OWN + PER_PROCESS + 2 * PER_REMOTE + 30
    unset = load_config(config(**servers, unset={"command": "$TEST_KEY_WITHOUT_VALUE"}), strict=False)
    assert descriptors_needed(unset, settings) == descriptors_needed(document, settings)
    isolated = load_settings(
        max_concurrent_calls=20, max_isolated_sessions=7, servers={"near": {"isolation": "session"}}
    )
    assert descriptors_needed(document, isolated) == OWN + 8 * PER_PROCESS + 2 * PER_REMOTE + 20
    assert descriptors_needed(document, settings, 1100) == OWN + PER_PROCESS + 2 * PER_REMOTE + 30 + 1100


async def test_too_low_a_limit_refuses_the_start_with_what_is_needed_and_starts_nothing(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    path, needed = write(tmp_path, a=lean(record=str(record)), b=lean()), OWN + 2 * PER_PROCESS
    async with running(*PROGRAM, path, handshake=False, preexec_fn=limited(needed - 1)) as server:
        assert await server.wait() == 2
        assert server.stderr.decode() == (
            f"{path}: 1 problem\n"
            f"  $.mcpServers: the servers need {needed} file descriptors, and the limit is {needed - 1}; "
            f"raise it (`ulimit -n {needed}`, or `LimitNOFILE={needed}` in a systemd unit), or have fewer servers\n"
        )
    assert not record.exists()


async def test_http_needs_descriptors_for_its_clients_too(tmp_path: Path) -> None:
    command = [*PROGRAM, write(tmp_path, a=lean()), "--transport", "http", "--port", "0"]
    async with running(*command, handshake=False, preexec_fn=limited(1024)) as server:
        assert await server.wait() == 2
    assert b"the servers and 1375 HTTP connections need " in server.stderr
    assert b"or lower `max_waiting_requests`" in server.stderr


@pytest.mark.skipif(not hasattr(psutil.Process, "rlimit"), reason="only Linux tells the limits of another process")
async def test_a_soft_limit_that_is_too_low_is_raised_and_the_log_says_so(tmp_path: Path) -> None:
    low = limited(40, 5000)
    async with running(*PROGRAM, write(tmp_path, a=lean()), "--debug", preexec_fn=low) as server:
        assert await server.client.names()
        assert psutil.Process(server.process.pid).rlimit(psutil.RLIMIT_NOFILE) == (5000, 5000)
        await server.said("the limit on file descriptors was raised from 40 to 5000")
        assert await server.end() == 0


@pytest.mark.skipif(not hasattr(psutil.Process, "rlimit"), reason="only Linux tells the limits of another process")
async def test_a_soft_limit_that_is_enough_is_left_as_it_is(tmp_path: Path) -> None:
    async with running(*PROGRAM, write(tmp_path, a=lean()), preexec_fn=limited(ENOUGH, 5000)) as server:
        assert await server.client.names()
        assert psutil.Process(server.process.pid).rlimit(psutil.RLIMIT_NOFILE) == (ENOUGH, 5000)
        assert await server.end() == 0


async def test_an_embedded_app_refuses_to_start_and_to_take_up_a_config_that_needs_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descriptors, "_limit", lambda needed=0: OWN + PER_PROCESS)
    with pytest.raises(ConfigError) as caught:
        async with build_aggregator(config(a=lean(), b=lean())):
            pytest.fail("entered")
    assert caught.value.code == "too_few_descriptors"
    async with build_aggregator(config(a=lean())) as app:
        with pytest.raises(ConfigError):
            await app.reload(config(a=lean(), b=lean()))
        assert list(app.health()) == list(app.config.servers) == ["a"]


def test_where_there_is_no_such_limit_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "resource", None)
    descriptors.require_descriptors(load_config(config()), load_settings(), connections=10**12)


# Later.


async def test_idle_connections_use_up_no_descriptors_that_others_need(tmp_path: Path) -> None:
    port = free_port()
    command = [*PROGRAM, write(tmp_path, a=lean()), "--transport", "http", "--port", str(port)]
    options = {"handshake": False, "preexec_fn": limited(ENOUGH), "env": {**os.environ, **FEW_CLIENTS}}
    async with running(*command, **options) as server, httpx2.AsyncClient(timeout=PATIENCE) as late:
        await server.said("serving on")
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * ENOUGH)]
        for _, writer in idle:
            writer.write(b"GET /elsewhere HTTP/1.1\r\n")
        assert (await late.get(f"http://127.0.0.1:{port}/health")).status_code == 200
        for _, writer in idle:
            writer.close()
        server.process.terminate()
        assert await server.wait() == 0
    assert b"file descriptors" not in server.stderr


def told_by(code: str, *arguments: str) -> list[str]:
    """Run a program that uses up its descriptors; the lines that it prints."""
    beginning = """
import asyncio, os, resource, signal, sys
sys.path.insert(0, sys.argv[1])
from support.harness import SLOW_RETRIES, config, lean, timed, until
from fastmcp_aggregator import ChildState, build_aggregator
used = []
def use_up():
    try:
        while True:
            used.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
def give_back():
    while used:
        os.close(used.pop())
"""
    command = [sys.executable, "-c", beginning + code, str(LEAN_CHILD.parents[2]), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, preexec_fn=limited(200)
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


def test_a_server_that_cannot_be_started_again_says_why_and_is_tried_again() -> None:
    told = told_by("""
async def main():
    async with timed(build_aggregator(config(a=lean(), b=lean())), SLOW_RETRIES) as app:
        a, b = app.children.values()
        echo = {"name": "echo", "arguments": {}}
        before = len(os.listdir("/dev/fd"))
        os.kill(app.health()["a"].pid, signal.SIGKILL)
        await until(lambda: app.health()["a"].state is ChildState.FAILED)
        use_up()
        for _ in range(3):
            try:
                await a.calls.request("tools/call", echo)
            except Exception as error:
                print(error)
        print("result" if "content" in await b.calls.request("tools/call", echo) else "none")
        give_back()
        print("result" if "content" in await a.calls.request("tools/call", echo) else "none")
        print(len(os.listdir("/dev/fd")) - before)
asyncio.run(main())
""")
    unavailable = (
        f"server 'a' failed during startup: it is unavailable (cannot start {sys.executable!r}: all 200 file "
        "descriptors are in use; raise the limit (`ulimit -n`)), next try in 3600 s"
    )
    assert told == [unavailable] * 3 + ["result", "result", "0"]


def test_a_remote_server_that_cannot_be_connected_says_why() -> None:
    told = told_by("""
async def main():
    document = config(far={"url": "http://127.0.0.1:1/mcp"})
    async with timed(build_aggregator(document, strict=False), SLOW_RETRIES) as app:
        await until(lambda: app.health()["far"].state is ChildState.FAILED)
        print(app.health()["far"].last_error)
        use_up()
        try:
            await app.children["far"].calls.request("tools/call", {"name": "echo"})
        except Exception as error:
            print(error.reason)
        give_back()
asyncio.run(main())
""")
    assert "connection refused" in told[0]
    assert "all 200 file descriptors are in use; raise the limit (`ulimit -n`)" in told[1]
