"""Hubs, bridges and servers are killed at random while many clients call.

Each client sends calls with a nonce of its own, some at a time. Each must be answered exactly once, with its own nonce
or with an error, unless its own bridge was killed; that client starts another one.
Exits with 1 if anything was lost, doubled or misdelivered, took too long, or was left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from benchmarks.hubs.machine import PROGRAM, Machine, lean, machine, median, until

SERVERS = 6
AT_ONCE = 4
"""Calls of one client."""
BACK_WITHIN = 2.0
"""Seconds after a hub was killed until all clients are served again."""


class Caller:
    """One client, with one bridge after the other."""

    def __init__(self, here: Machine, config: str, number: int) -> None:
        self._here = here
        self._config = config
        self._number = number
        self.counts: Counter[str] = Counter()
        self.is_over = False
        self.process: asyncio.subprocess.Process | None = None
        self.served_at = 0.0
        """When the last call began that was answered."""
        self._calls = 0

    async def run(self) -> None:
        while not self.is_over:
            await self._run_bridge()

    async def _run_bridge(self) -> None:
        self.process = process = await asyncio.create_subprocess_exec(
            PROGRAM,
            "attach",
            self._config,
            "--no-strict",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._here.environ,
            limit=1024 * 1024,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = asyncio.create_task(process.stderr.read())
        waiting: dict[Any, tuple[str, float]] = {}
        about = {"name": f"c{self._number}", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
        self._send(process, id=0, method="initialize", params=hello)
        waiting[0] = "initialize", time.monotonic()
        with suppress(ConnectionError):
            while True:
                while len(waiting) < AT_ONCE and 0 not in waiting and not self.is_over:
                    self._call(process, waiting)
                line = await process.stdout.readline()
                if not line:
                    break
                self._hear(process, json.loads(line), waiting)
                if self.is_over and not waiting:
                    process.stdin.close()
        await process.wait()
        if process.returncode == -signal.SIGKILL:
            self.counts["calls of killed bridges"] += len(waiting)
        else:
            self.counts["LOST"] += len(waiting)
        if said := await complaints:
            self.counts[f"stderr: {said[:200]!r}"] += 1

    def _call(self, process: asyncio.subprocess.Process, waiting: dict[Any, tuple[str, float]]) -> None:
        self._calls += 1
        nonce = f"{self._number}-{self._calls}-{random.random()}"
        server = random.randrange(SERVERS)
        waiting[self._calls] = nonce, time.monotonic()
        params = {"name": f"s{server}:echo", "arguments": {"nonce": nonce}}
        self._send(process, id=self._calls, method="tools/call", params=params)

    def _hear(
        self, process: asyncio.subprocess.Process, message: dict[str, Any], waiting: dict[Any, tuple[str, float]]
    ) -> None:
        if "method" in message:
            self.counts[f"told {message['method']}"] += 1
            return
        nonce, began = waiting.pop(message.get("id"), (None, 0.0))
        if nonce is None:
            self.counts["DOUBLED"] += 1
        elif nonce == "initialize":
            self.counts["sessions" if "result" in message else "SESSIONS REFUSED"] += 1
            self._send(process, method="notifications/initialized")
        elif "error" in message:
            self.counts[f"error: {message['error']['message'][:60]}"] += 1
        elif nonce in message["result"]["content"][0]["text"]:
            self.counts["answered"] += 1
            self.served_at = max(self.served_at, began)
        else:
            self.counts["MISDELIVERED"] += 1

    @staticmethod
    def _send(process: asyncio.subprocess.Process, **message: Any) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


async def _kill_at_random(
    here: Machine, callers: list[Caller], seconds: float, every: float
) -> tuple[Counter[str], list[float]]:
    killed: Counter[str] = Counter()
    back: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(random.uniform(0.5, 1.5) * every)
        kind = random.choice(["hub", "bridge", "server", "server"])
        pids = {
            "hub": here.hubs,
            "bridge": lambda: [caller.process.pid for caller in callers if caller.process],
            "server": here.servers,
        }[kind]()
        if not pids:
            continue
        with suppress(ProcessLookupError):
            os.kill(random.choice(pids), signal.SIGKILL)
            killed[kind] += 1
        if kind == "hub":
            at = time.monotonic()
            while any(caller.served_at <= at for caller in callers) and time.monotonic() < at + 20:
                await asyncio.sleep(0.01)
            back.append(time.monotonic() - at)
    return killed, back


async def _run(here: Machine, options: argparse.Namespace) -> bool:
    config = here.config(**{f"s{number}": lean() for number in range(SERVERS)})
    callers = [Caller(here, config, number) for number in range(options.clients)]
    running = [asyncio.create_task(caller.run()) for caller in callers]
    await asyncio.sleep(5)
    killed, back = await _kill_at_random(here, callers, options.seconds, options.every)
    for caller in callers:
        caller.is_over = True
    await asyncio.wait_for(asyncio.gather(*running), 60)
    counts = sum((caller.counts for caller in callers), Counter[str]())
    print(f"killed: {dict(killed)}")
    for what, count in sorted(counts.items()):
        print(f"  {what}: {count}")
    print(f"all clients served again after the end of a hub: p50 {median(back):.2f} s, max {max(back):.2f} s")
    late = sum(seconds > BACK_WITHIN for seconds in back)
    print(f"later than {BACK_WITHIN:g} s: {late} of {len(back)}")
    return not any(
        what.isupper() or what.startswith(("LOST", "DOUBLED", "MISDELIVERED", "SESSIONS R")) for what in counts
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two kills, on average")
    options = parser.parse_args()
    with machine(hub_idle="1", start="eager") as here:
        is_well = asyncio.run(_run(here, options))
        until(lambda: not here.processes() and not here.servers(), 60)
        print("processes left: 0")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
