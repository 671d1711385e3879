"""The end of the program while it works."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from support.harness import lean
from support.wire_http import HttpClient

from benchmarks.faults.figures import Figure, soon
from benchmarks.faults.http_calls import head_of, is_refused
from benchmarks.faults.programs import Program, are_gone, http_program, program, recorded, seen

DRAIN = 30
CLOSING = 5
"""Seconds that the servers have to close afterwards, at most."""
SERVERS = 10
SLOW = {"steps": 1, "pause": 2}
"""A call that is answered after two seconds."""


async def sigterm_on_stdio(folder: Path) -> list[Figure]:
    """Of two calls in flight, one is answered after two seconds and the other never."""
    record = str(folder / "pids")
    async with program(folder, slow=lean(record=record), held=lean(record=record)) as running:
        await running.hold("held")
        call = running.client.begin("tools/call", {"name": "slow:progress", "arguments": SLOW})[1]
        told = await _told_to_end(running)
        while "error" not in (refused := await running.client.send("tools/call", {"name": "held:echo"})):
            pass
        is_answered = "result" in await call
        code, ended = await running.ended()
    assert "is shutting down" in refused["error"]["message"]
    return _drained("SIGTERM during calls on stdio", folder, is_answered, code, ended - told)


async def sigterm_over_http(folder: Path) -> list[Figure]:
    """The same over HTTP, where new requests get 503."""
    fault, record = "SIGTERM during calls over HTTP", str(folder / "pids")
    async with http_program(folder, slow=lean(record=record), held=lean(record=record)) as (running, url):
        client = HttpClient(url, modern=False, name="faults")
        await client.start()
        await client.call("slow:echo")
        client.begin("tools/call", {"name": "held:hold"})
        call = client.begin("tools/call", {"name": "slow:progress", "arguments": SLOW})[1]
        await running.told("holding")
        told = await _told_to_end(running)
        while b" 503 " not in (head := await head_of(url, "held:echo")):
            pass
        is_answered = "result" in await call
        code, ended = await running.ended()
        await client.close()
    refused = Figure(fault, "new requests get 503 with Retry-After", True, is_refused(head), exact=True)
    return [refused, *_drained(fault, folder, is_answered, code, ended - told)]


async def _told_to_end(running: Program) -> float:
    running.process.send_signal(signal.SIGTERM)
    return time.monotonic()


def _drained(fault: str, folder: Path, is_answered: bool, code: int, seconds: float) -> list[Figure]:
    left = sum(not are_gone([pid]) for pid in recorded(folder / "pids"))
    return [
        Figure(fault, "a call of 2 s is answered", True, is_answered, exact=True),
        Figure(fault, "ended, though another call never does", DRAIN + CLOSING, seconds, "s"),
        Figure(fault, "exit code", 0, code, exact=True),
        Figure(fault, "processes left", 0, left, exact=True),
    ]


async def second_signal(folder: Path) -> list[Figure]:
    """While the first is being followed; the server ignores the end of its stdin and SIGTERM."""
    fault, rounds = "a second signal", 3
    seconds, codes, record = [], [], folder / "pids"
    for _ in range(rounds):
        async with program(folder, stubborn=lean(record=str(record), ignore_eof=True)) as running:
            await running.hold("stubborn")
            await _told_to_end(running)
            while "error" not in await running.client.send("tools/call", {"name": "stubborn:echo"}):
                pass
            running.process.send_signal(signal.SIGINT)
            signalled = time.monotonic()
            code, _ = await running.ended()
            codes.append(code)
            seconds.append(await seen(lambda: are_gone(recorded(record))) - signalled)
    return [
        soon(fault, "program and servers have ended", 1000, seconds),
        Figure(fault, "exit code", 1, max(codes), exact=True),
    ]


async def aggregator_killed(folder: Path) -> list[Figure]:
    """Half of the servers end when their stdin does, and half of them ignore it."""
    record = folder / "pids"
    servers = {f"s{i}": lean(record=str(record), ignore_eof=i % 2 == 0) for i in range(SERVERS)}
    async with program(folder, **servers) as running:
        os.kill(running.process.pid, signal.SIGKILL)
        killed = time.monotonic()
        gone = await seen(lambda: are_gone(recorded(record)), within=10)
    note = f"{SERVERS} servers; Linux"
    return [Figure("kill -9 of the aggregator", "all servers are gone", 5, gone - killed, "s", note)]
