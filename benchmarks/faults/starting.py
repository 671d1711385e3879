"""Servers that do not start."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from support.harness import RawClient, config, connected, lean

from benchmarks.faults.figures import Figure, soon
from benchmarks.faults.programs import are_gone, program, recorded, seen
from fastmcp_aggregator import build_aggregator

MISSING = {"command": "no-such-command-anywhere"}


async def a_command_that_does_not_exist(folder: Path) -> list[Figure]:
    """Strict: the end of the program. Not strict: how soon the others are listed, counted from the start of the app."""
    fault = "a command that does not exist"
    async with program(folder, handshake=False, missing=MISSING, good=lean()) as running:
        code, _ = await running.ended()
    told = any("missing" in line and "no-such-command-anywhere" in line for _, line in running.said)
    began = time.monotonic()
    others = {f"good{i}": lean() for i in range(10)}
    async with build_aggregator(config(missing=MISSING, **others), strict=False) as app, connected(app) as client:
        names = await client.names()
        listed = time.monotonic() - began
    assert {name.split(":")[0] for name in names} == others.keys()
    return [
        Figure(fault, "exit code, strict", 3, code, exact=True),
        Figure(fault, "server and command named", True, told, exact=True),
        soon(fault, "10 others listed, not strict", 1000, [listed]),
    ]


async def a_server_that_exits_at_start(folder: Path) -> list[Figure]:
    """Called all the time, which brings its next start forward while it may."""
    fault, watched = "a server that exits at its start", 15.0
    record = folder / "pids"
    servers = {"bad": lean(exit_at_start=3, record=str(record)), "good": lean()}
    async with program(folder, "--no-strict", **servers) as running:
        end = time.monotonic() + watched
        while time.monotonic() < end:
            error = await running.client.error("tools/call", {"name": "bad:echo"})
            await asyncio.sleep(0.1)
    pause = error["data"]["retryIn"]
    note = f"in {watched:.0f} s; the next in {pause:.0f} s"
    return [Figure(fault, "starts in a minute, while it is called", 8, len(recorded(record)), note=note)]


async def a_server_that_hangs_at_initialize(folder: Path) -> list[Figure]:
    """It ignores the end of its stdin and SIGTERM as well.

    The list is counted from the first answered call: the handshake is answered before the program is up.
    """
    fault, deadline = "a server that hangs at initialize", 3.0
    record = folder / "pids"
    servers = {"hangs": lean(silent=True, ignore_eof=True, record=str(record)), "good": lean()}
    settings = {"startup_timeout": deadline, "ready_wait": 1.0, "strict": "false"}
    began = time.monotonic()
    async with program(folder, handshake=False, settings=settings, **servers) as running:
        await running.client.start()
        up, called, listed = await _call_and_list(running.client)
        first = recorded(record)[:1]
        assert first
        gone = await seen(lambda: are_gone(first))
    note = f"{listed - began:.1f} s after the program's start"
    return [
        soon(fault, "a call to another, at once", 100, [called]),
        Figure(fault, "the others listed, ready_wait 1 s", 1.1, listed - up, "s", note=note),
        Figure(fault, "process gone after its deadline", 5, max(0.0, gone - up - deadline), "s"),
    ]


async def _call_and_list(client: RawClient) -> tuple[float, float, float]:
    """When a first call was answered, how many seconds one took while a list waits, and when that was answered."""
    listing = client.begin("tools/list")[1]
    await client.call("good:echo")  # waits for the start of this server
    up = time.monotonic()
    await client.call("good:echo")
    called = time.monotonic() - up
    assert not listing.done()
    await listing
    return up, called, time.monotonic()
