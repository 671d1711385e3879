"""An aggregator with servers that are real processes, callers on pipes and over HTTP, and a ledger of all calls.

Nothing here waits for an answer before `settle`: calls, kills and new configs overlap as they happen to. The ledger
knows of each call which servers may answer it and whether it may fail, from what was done and not from when.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from garbage import MODERN_ENVELOPE
from http_garbage import Sent, exchange, request
from ledger import Call
from support.harness import PATIENCE, RawClient, config, connected, lean, until
from support.processes import is_gone, pids_in
from support.serving import served

from fastmcp_aggregator import ChildState, build_aggregator

KEYS = frozenset("abc")
PIPES = ("legacy", "modern")
CALLERS = (*PIPES, "http")
RUNNING, WAITING = 4, 4
"""HTTP requests that may run and wait at once."""
AT_ONE_SERVER = 6
"""Calls of one server that may be in flight at once."""
MOST_HELD = 4
"""Calls that are answered only when the server is told to, which takes another call."""
CRASH_LOOP = 5
"""Ends of one server within a minute after which it may be left alone for long."""


class Playground:
    """The aggregator, its servers and its callers."""

    def __init__(self, folder: Path) -> None:
        self.open: list[Call] = []
        """What was not answered when it was last looked at, and what was called since."""
        self.entries: dict[str, int] = {"a": 1, "b": 2}
        """The servers in the config, each with a version of its own."""
        self.frozen: dict[str, int | None] = {}
        """The servers that were stopped with SIGSTOP, with their processes."""
        self._record = folder / "pids"
        self._possible: dict[str, set[int | None]] = {key: {self.entries.get(key)} for key in KEYS}
        self._disturbed: set[str] = set()
        self._ends: Counter[str] = Counter()
        self._number = max(self.entries.values())
        self._reloads: list[asyncio.Task[None]] = []
        self._clients: dict[str, tuple[AsyncExitStack, RawClient]] = {}
        self._begun, self._end = asyncio.Event(), asyncio.Event()

    # Its life.

    async def start(self) -> None:
        self._life = asyncio.create_task(self._live())
        begun = asyncio.create_task(self._begun.wait())
        await asyncio.wait({begun, self._life}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._life.done():
            self._life.result()
        for caller in PIPES:
            await self._connect(caller)

    async def close(self) -> None:
        for key in list(self.frozen):
            self.thaw(key)
        await self.settle()
        for caller in PIPES:
            await self._clients[caller][0].aclose()
        self._end.set()
        await asyncio.wait_for(self._life, PATIENCE)
        await until(lambda: not self._living())

    async def _live(self) -> None:
        settings = {
            "max_concurrent_requests": RUNNING,
            "max_waiting_requests": WAITING,
            "max_concurrent_calls": AT_ONE_SERVER,
        }
        async with build_aggregator(self._config(), **settings) as self.app, served(self.app) as front:
            self._port = int(front.origin.rpartition(":")[2])
            self._begun.set()
            await self._end.wait()

    def _config(self) -> dict[str, Any]:
        record = str(self._record)
        return config(**{key: lean(name=f"{key}.{version}", record=record) for key, version in self.entries.items()})

    async def _connect(self, caller: str) -> None:
        stack = AsyncExitStack()
        client = await stack.enter_async_context(connected(self.app, modern=caller == "modern"))
        self._clients[caller] = stack, client

    # What callers do.

    def call(self, caller: str, key: str, tool: str) -> None:
        """A call that is answered at once (`echo`), later (`hold`), or by the end of its server (`leave`)."""
        if sum(call.tool == "hold" for call in self._open_at(key)) >= MOST_HELD and tool == "hold":
            tool = "echo"
        if tool == "leave":
            self._disturb(key)
            self._ends[key] += 1
        self._number += 1
        nonce = str(self._number)
        begin = self._begin_http if caller == "http" else self._begin_pipe
        answer, give_up = begin(caller, {"name": f"{key}:{tool}", "arguments": {"nonce": nonce}})
        at_once = sum(call.caller == "http" for call in self.open)
        is_much = len(self._open_at(key)) >= AT_ONE_SERVER or (caller == "http" and at_once >= RUNNING + WAITING)
        for other in self.open:  # what was sent before may come later
            other.may_be_turned_away |= is_much and (other.key == key or other.caller == caller == "http")
        may_fail, versions = key in self._disturbed, set(self._possible[key])
        self.open.append(Call(caller, key, tool, nonce, answer, give_up, versions, may_fail, is_much))

    async def call_often(self, caller: str, key: str) -> None:
        """More calls at the same time than one server may have."""
        for _ in range(2 * AT_ONE_SERVER):
            self.call(caller, key, "echo")
        await self.watch()

    async def crowd(self) -> None:
        """More HTTP requests than may run, to all servers."""
        for _ in range(3):
            for key in sorted(KEYS):
                self.call("http", key, "hold")
        await self.watch()

    async def watch(self) -> None:
        """Look closely for a while."""
        for _ in range(100):
            await asyncio.sleep(0)
            self.check()

    def cancel(self, call: Call) -> None:
        call.is_cancelled = True
        call.give_up()

    async def leave(self, caller: str) -> None:
        """A client ends its connection in the middle of everything, and comes back with a new one."""
        for call in self.open:
            call.is_cancelled |= call.caller == caller
        await self._clients[caller][0].aclose()
        await self._connect(caller)

    async def check_list(self, caller: str) -> None:
        """The tools of all servers that were left in peace are listed, and of none that cannot be there."""
        names = await self._clients[caller][1].names()
        for key in KEYS:
            is_there = f"{key}:echo" in names
            if key not in self._disturbed:
                states = {name: status.state for name, status in self.app.health().items()}
                assert is_there == (key in self.entries), f"{key}: {caller} sees {names}; {self.entries}, {states}"

    def _begin_pipe(self, caller: str, params: dict[str, Any]) -> tuple[asyncio.Future[Any], Callable[[], None]]:
        client = self._clients[caller][1]
        number, answer = client.begin("tools/call", params)
        return answer, lambda: client.notify("notifications/cancelled", {"requestId": number})

    def _begin_http(self, _: str, params: dict[str, Any]) -> tuple[asyncio.Future[Any], Callable[[], None]]:
        message = {"id": 1, "method": "tools/call", "params": {**params, **MODERN_ENVELOPE}}
        sent = Sent(request(message).encoded(), is_whole=True)
        exchanging = asyncio.create_task(exchange(self._port, sent))
        return exchanging, lambda: exchanging.cancel() and None

    # What happens to servers.

    def kill(self, key: str) -> None:
        self._disturb(key)
        self._ends[key] += 1
        self.frozen.pop(key, None)
        self._signal(self._pid(key), signal.SIGKILL)

    def freeze(self, key: str) -> None:
        self.frozen[key] = self._pid(key)
        self._signal(self.frozen[key], signal.SIGSTOP)

    def thaw(self, key: str) -> None:
        self._signal(self.frozen.pop(key), signal.SIGCONT)

    def exchange(self, key: str, *, is_there: bool) -> None:
        """A new config, in which one server is added, removed or changed; it is not waited for."""
        self._number += 1
        self.entries.pop(key, None)
        if is_there:
            self.entries[key] = self._number
        self._disturb(key)
        self._ends[key] = 0
        self.frozen.pop(key, None)
        possible = self.entries.get(key)
        self._possible[key].add(possible)
        for call in self._open_at(key):
            call.versions.add(possible)
        self._reloads.append(asyncio.create_task(self.app.reload(self._config())))

    def _disturb(self, key: str) -> None:
        self._disturbed.add(key)
        for call in self._open_at(key):
            call.may_fail = True

    def _open_at(self, key: str) -> list[Call]:
        return [call for call in self.open if call.key == key]

    def _pid(self, key: str) -> int | None:
        status = self.app.health().get(key)
        return status.pid if status is not None else None

    @staticmethod
    def _signal(pid: int | None, number: signal.Signals) -> None:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def at_front(self) -> tuple[int, int]:
        """How many HTTP requests run, and how many wait."""
        return self.app._backend.admission.counts()

    # What must be true.

    def check(self) -> None:
        """At any moment: no answer is wrong, none comes twice, and no more run than may."""
        faults = [fault for call in self.open if (fault := call.fault())]
        assert not faults, faults
        for _, client in self._clients.values():
            strays = [message for message in client.notifications if "method" not in message]
            assert not strays, f"answers that nobody waited for: {strays}"
        in_flight = {key: status.in_flight for key, status in self.app.health().items()}
        assert max(in_flight.values(), default=0) <= AT_ONE_SERVER, in_flight
        if all(len(self._open_at(key)) <= AT_ONE_SERVER for key in KEYS):  # or some step aside and back
            assert sum(in_flight.values()) <= RUNNING + sum(call.caller != "http" for call in self.open), in_flight

    async def settle(self) -> None:
        """Wait for everything that can be waited for; what is left is at servers that are frozen."""
        await asyncio.wait_for(asyncio.gather(*self._reloads), PATIENCE)
        self._reloads.clear()
        expected = self._expected()
        for key in expected:
            await self._until_running(key)
        left = self._left_open()
        async with asyncio.timeout(PATIENCE):
            while waiting := [call for call in self.open if call not in left and not self._is_over(call)]:
                for key in {call.key for call in waiting if call.key not in self.frozen}:
                    await self._ask(key, "release")
                await asyncio.sleep(0.005)
        for key in expected:  # which a call may have ended meanwhile
            await self._until_running(key)
        self.check()
        self.open = left
        self._possible = {key: {self.entries.get(key)} for key in KEYS}
        self._disturbed.difference_update(expected, KEYS - self.entries.keys())
        self._disturbed.update(call.key for call in left if call.tool == "leave")  # its turn is still to come
        await until(self._is_balanced)

    def _expected(self) -> list[str]:
        """The servers that must run again, or be able to."""
        return [key for key in self.entries if key not in self.frozen and self._ends[key] < CRASH_LOOP]

    async def _until_running(self, key: str) -> None:
        """Wait until the server runs and answers; a call brings its next start forward."""
        async with asyncio.timeout(PATIENCE):
            while "error" in await self._ask(key, "echo") or self.app.health()[key].state is not ChildState.RUNNING:
                await asyncio.sleep(0.005)

    async def _ask(self, key: str, tool: str) -> dict[str, Any]:
        return await self._clients["legacy"][1].send("tools/call", {"name": f"{key}:{tool}", "arguments": {}})

    def _left_open(self) -> list[Call]:
        """Calls of frozen servers; and if these take all turns over HTTP, all other calls over HTTP."""
        open_calls = [call for call in self.open if not call.is_cancelled]
        at_frozen = [call for call in open_calls if call.key in self.frozen]
        if sum(call.caller == "http" for call in at_frozen) < RUNNING:
            return at_frozen
        return [call for call in open_calls if call in at_frozen or call.caller == "http"]

    @staticmethod
    def _is_over(call: Call) -> bool:
        return call.is_cancelled or call.answer.done()

    def _is_balanced(self) -> bool:
        """Nothing is counted that is over, and every process is in the table.

        A call may still wait for its turn over HTTP, or for a server that was frozen before it had started.
        """
        health = self.app.health()
        for key, status in health.items():
            calls = [call for call in self._open_at(key) if not self._is_over(call)]
            certain = [call for call in calls if call.caller != "http" and key not in self._disturbed]
            if not len(certain) <= status.in_flight + status.waiting <= len(calls):
                return False
        return self._living() <= {status.pid for status in health.values()}

    def _living(self) -> set[int]:
        """The servers' processes that have not ended."""
        pids = set(pids_in(self._record)) if self._record.exists() else set()
        return {pid for pid in pids if not is_gone(pid)}
