"""Servers that crash, freeze, fall silent, or leave processes behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from support.harness import lean

from benchmarks.faults.figures import Figure, ratio, soon
from benchmarks.faults.programs import Caller, Program, is_gone, program, recorded, seen, window

VICTIMS = 5
ROUNDS = 2
"""Kills of each victim."""
IN_FLIGHT = 5
WINDOW = 1.0
"""Seconds in which others are watched, before and from a fault on."""


async def kill_9(folder: Path) -> list[Figure]:
    """Servers are killed one after the other while each has calls in flight, and another one is called."""
    fault = "kill -9 during calls"
    quiet, during, failed, back, wrong = [], [], [], [], 0
    servers = {f"victim{i}": lean() for i in range(VICTIMS)}
    async with program(folder, **servers, other=lean()) as running, Caller(running.client, "other") as caller:
        for number in range(VICTIMS * ROUNDS):
            key = f"victim{number % VICTIMS}"
            pid = await running.pid_of(key)
            quiet.append(await window(WINDOW))
            calls = await running.hold(key, IN_FLIGHT)
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            watching = asyncio.create_task(window(WINDOW))
            answers = await asyncio.gather(*calls)
            failed.append(time.monotonic() - killed)
            wrong += sum(not _names(answer, key) for answer in answers)
            await running.pid_of(key)
            back.append(time.monotonic() - killed)
            during.append(await watching)
    return [
        soon(fault, f"its {IN_FLIGHT} calls in flight have failed", 100, failed),
        Figure(fault, "calls of others that failed, or errors without the server", 0, wrong + caller.errors),
        soon(fault, "it is back for the next call", 5000, back),
        ratio(fault, 2, caller.within(quiet), caller.within(during)),
    ]


def _names(answer: dict[str, Any], key: str) -> bool:
    return "error" in answer and f"server {key!r}: it was ended by signal SIGKILL" in answer["error"]["message"]


async def sigstop(folder: Path) -> list[Figure]:
    """Takes most of a minute: how long an idle server is left in peace."""
    fault, deadline = "SIGSTOP", 2.0
    async with program(folder, settings={"call_timeout": deadline}, frozen=lean()) as running:
        pid = await running.pid_of("frozen")
        os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        await running.client.begin("tools/call", {"name": "frozen:echo"})[1]
        late = time.monotonic() - stopped - deadline
        gone = await seen(lambda: is_gone(pid), within=90)
        is_back = await running.pid_of("frozen") != pid
    return [
        soon(fault, "a call fails after its deadline", 250, [late]),
        Figure(fault, "found and killed", 45, gone - stopped, "s"),
        Figure(fault, "started again", True, is_back, exact=True),
    ]


async def stdout_closed(folder: Path) -> list[Figure]:
    """The server lives on, and ignores the end of its stdin and SIGTERM."""
    async with program(folder, mute=lean(ignore_eof=True)) as running:
        pid = await running.pid_of("mute")
        closed = time.monotonic()
        running.client.begin("tools/call", {"name": "mute:mute"})
        gone = await seen(lambda: is_gone(pid))
        is_back = await running.pid_of("mute") != pid
    fault = "stdout closed, process alive"
    return [
        Figure(fault, "killed", 5, gone - closed, "s"),
        Figure(fault, "started again", True, is_back, exact=True),
    ]


async def silence(folder: Path) -> list[Figure]:
    """A server that answers nothing: each call fails at its deadline, and then it is left alone."""
    fault, deadline = "silence in place of answers", 0.5
    late, tried = [], 0
    async with program(folder, settings={"call_timeout": deadline}, silent=lean()) as running:
        while True:
            began = time.monotonic()
            error = await running.client.error("tools/call", {"name": "silent:hold"})
            took = time.monotonic() - began
            if "several times in a row" in error["message"]:
                break
            tried += 1
            late.append(took - deadline)
    return [
        soon(fault, "calls fail after their deadline", 250, late),
        Figure(fault, "calls before it is left alone", 5, tried, exact=True),
        Figure(fault, "left alone for", 30, round(error["data"]["retryIn"]), "s", exact=True),
        soon(fault, "the next call is rejected", 50, [took]),
    ]


async def grandchildren(folder: Path) -> list[Figure]:
    """The server has started a process of its own; then it crashes, is killed, or is closed politely."""
    fault, record = "a server with a child of its own", folder / "grandchildren"
    after: list[float] = []
    async with program(folder, parent=lean(grandchild=str(record))) as running:
        await running.pid_of("parent")
        ended = time.monotonic()
        await running.client.send("tools/call", {"name": "parent:leave"})
        after.append(await _grandchild_gone(record, ended))
        pid = await running.pid_of("parent")
        ended = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        after.append(await _grandchild_gone(record, ended))
        pid = await running.pid_of("parent")
        after.append(await _closed_politely(running, pid, record))
    return [soon(fault, "its child is gone after a crash, kill -9, and a polite end", 1000, after)]


async def _closed_politely(running: Program, pid: int, record: Path) -> float:
    assert running.process.stdin is not None
    running.process.stdin.close()
    ended = await seen(lambda: is_gone(pid))
    return await _grandchild_gone(record, ended)


async def _grandchild_gone(record: Path, since: float) -> float:
    pid = recorded(record)[-1]
    return max(0.0, await seen(lambda: is_gone(pid)) - since)
