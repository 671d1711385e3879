"""Servers that write too much, or read too little."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psutil
from support.harness import config, connected, lean

from benchmarks.faults.figures import Figure, percentile, ratio, soon
from benchmarks.faults.programs import Caller, Memory, program, window
from fastmcp_aggregator import build_aggregator

FLOODS = 6
MIB = 1024 * 1024


async def junk(folder: Path) -> list[Figure]:
    """Lines that are no messages: first fewer than a thousand in a minute, then more."""
    fault = "junk on stdout"
    async with program(folder, junk=lean()) as running:
        pid = await running.pid_of("junk")
        began = time.monotonic()
        for _ in range(30):
            await running.client.call("junk:junk", lines=30)
            await asyncio.sleep(0.1)
        seconds = time.monotonic() - began
        reports = len(running.times("no MCP message"))
        is_same = await running.pid_of("junk") == pid
        began = time.monotonic()
        await running.client.send("tools/call", {"name": "junk:junk", "arguments": {"lines": 2000}})
        await running.pid_of("junk")
        replaced = time.monotonic() - began
        is_other = await running.pid_of("junk") != pid
    return [
        Figure(fault, "log lines a second", 1, (reports - 1) / seconds, note=f"900 junk lines in {seconds:.1f} s"),
        Figure(fault, "goes on with 900 lines a minute", True, is_same, exact=True),
        Figure(fault, "is replaced with 2900 lines a minute", True, is_other, exact=True),
        soon(fault, "and back for the next call", 5000, [replaced]),
    ]


async def stderr_flood(folder: Path) -> list[Figure]:
    """100 MB on stderr; ours is read as fast as it can be."""
    lines = 1_000_000
    async with program(folder, loud=lean(), other=lean()) as running:
        await running.client.call("loud:flood", lines=10_000)
        async with Memory(running.watched) as memory:
            await running.client.begin("tools/call", {"name": "loud:flood", "arguments": {"lines": lines}})[1]
    return [Figure("100 MB on stderr", "memory grows by", 8, memory.grown, "MiB")]


async def notifications(folder: Path) -> list[Figure]:
    """Floods of 20 000 notifications, one after the other, while another server is called."""
    fault = "20 000 notifications at once"
    quiet, during = [], []
    async with program(folder, flood=lean(), other=lean()) as running, Caller(running.client, "other") as caller:
        for _ in range(FLOODS):
            began = time.monotonic()
            await running.client.call("flood:spam", notifications=20_000)
            during.append((began, time.monotonic()))
            quiet.append(await window(time.monotonic() - began))
    return [
        Figure(fault, "errors for others", 0, caller.errors),
        ratio(fault, 3, caller.within(quiet), caller.within(during)),
    ]


async def oversized_lines(folder: Path) -> list[Figure]:
    """Answers of three times the limit."""
    fault, limit, rounds = "a line of 300 MB, limit 100 MiB", 100, 3
    blocked, idle = [], []
    async with (
        build_aggregator(config(big=lean()), max_response_size_mb=limit) as app,
        connected(app) as client,
        Memory(psutil.Process()) as memory,
    ):
        for _ in range(rounds):
            async with _Lag() as lag:
                await asyncio.sleep(1)
            idle.append(lag.longest)
            async with _Lag() as lag:
                error = await client.error("tools/call", {"name": "big:big", "arguments": {"size": 300 * MIB}})
            assert error["message"].startswith("response too large")
            blocked.append(lag.longest)
    note = f"median of {rounds}; {percentile(idle, 0.5) * 1000:.0f} ms in idle times"
    return [
        Figure(fault, "event loop blocked", 50, percentile(blocked, 0.5) * 1000, "ms", note),
        Figure(fault, "memory grows by", limit * 1.25, memory.grown, "MiB"),
    ]


class _Lag:
    """The longest time for which the event loop of this process kept a task waiting, in seconds."""

    longest = 0.0

    async def __aenter__(self) -> _Lag:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + 0.001
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.monotonic() - due)


async def endless_line(folder: Path) -> list[Figure]:
    """A line without an end."""
    fault, limit = "a line that never ends, limit 100 MiB", 100
    settings = {"max_response_size_mb": limit}
    async with program(folder, settings=settings, endless=lean(), other=lean()) as running:
        pid = await running.pid_of("endless")
        async with Memory(running.watched) as memory:
            await running.client.send("tools/call", {"name": "endless:endless"})
        is_back = await running.pid_of("endless") != pid
    return [
        Figure(fault, "memory grows by", limit * 1.25, memory.grown, "MiB"),
        Figure(fault, "started again", True, is_back, exact=True),
    ]


async def stdin_not_read(folder: Path) -> list[Figure]:
    """More is written to servers than their pipes take, to one after the other."""
    fault, deadline = "a server that does not read", 0.5
    keys = [f"deaf{number}" for number in range(8)]
    quiet, during, late = [], [], []
    servers = {key: lean() for key in keys}
    async with (
        program(folder, settings={"call_timeout": deadline}, other=lean(), **servers) as running,
        Caller(running.client, "other") as caller,
    ):
        for key in keys:
            quiet.append(await window(deadline))
            running.client.begin("tools/call", {"name": f"{key}:deaf"})
            payload = {"name": f"{key}:echo", "arguments": {"p": "x" * 300_000}}
            began = time.monotonic()
            await asyncio.gather(*(running.client.begin("tools/call", payload)[1] for _ in range(4)))
            during.append((began, time.monotonic()))
            late.append(time.monotonic() - began - deadline)
    return [
        soon(fault, "writes fail after the deadline of their calls", 250, late),
        Figure(fault, "errors for others", 0, caller.errors),
        ratio(fault, 2, caller.within(quiet), caller.within(during)),
    ]
