"""A soak: servers are killed at random while many callers call.

    python benchmarks/soak.py [--seconds N] [--json FILE]

Twenty children behind one aggregator on stdio; every second one of them is killed with SIGKILL; sixteen callers call
without pause, each call with a nonce of its own. Each call must be answered exactly once: with its own nonce, or with
an error that names the server that was killed. Memory, descriptors, threads and processes of the aggregator are
sampled, and must not grow. Exits with 1 if anything was lost, doubled or misdelivered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent
LEAN_CHILD = ROOT / "tests" / "support" / "programs" / "lean_child.py"
CHILDREN = 20
CALLERS = 16
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}}


@dataclass
class Report:
    """What happened; the first five must be 0."""

    lost: int = 0
    doubled: int = 0
    misdelivered: int = 0
    wrong_errors: int = 0
    left_behind: int = 0
    calls: int = 0
    answered: int = 0
    failed_with_their_server: int = 0
    kills: int = 0
    seconds: float = 0.0
    memory_mb: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every call was answered once, by the right server, and nothing has grown."""
        faults = self.lost + self.doubled + self.misdelivered + self.wrong_errors + self.left_behind
        return faults == 0 and all(map(is_flat, (self.memory_mb, self.descriptors, self.threads, self.processes)))


def is_flat(samples: list[Any]) -> bool:
    """Whether the second half is no more than a tenth, and a little, above the first."""
    half = len(samples) // 2
    return half < 5 or median(samples[half:]) <= median(samples[:half]) * 1.1 + 5


class Connection:
    """The one client connection, shared by all callers."""

    def __init__(self, process: asyncio.subprocess.Process, report: Report) -> None:
        self._process = process
        self._report = report
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request; its whole response."""
        self._next_id += 1
        number = self._next_id
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self.tell({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(self._waiting[number], 60)

    def tell(self, message: dict[str, Any]) -> None:
        """Any message."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            if "method" in message:
                continue
            future = self._waiting.pop(message["id"], None)
            if future is None:
                self._report.doubled += 1
            elif not future.done():
                future.set_result(message)


async def call_for(connection: Connection, report: Report, until: float, caller: int) -> None:
    """One caller: calls random servers, and judges each answer."""
    number = 0
    while time.monotonic() < until:
        number += 1
        server, nonce = f"s{random.randrange(CHILDREN)}", f"{caller}.{number}"
        report.calls += 1
        try:
            answer = await connection.ask("tools/call", {"name": f"{server}:echo", "arguments": {"nonce": nonce}})
        except TimeoutError:
            report.lost += 1
            continue
        if "error" in answer:
            is_its_own = f"server {server!r}" in answer["error"]["message"]
            report.failed_with_their_server += is_its_own
            report.wrong_errors += not is_its_own
            continue
        echoed = json.loads(answer["result"]["content"][0]["text"])
        is_right = (echoed["arguments"], echoed["server"]) == ({"nonce": nonce}, server)
        report.answered += is_right
        report.misdelivered += not is_right


async def kill_and_sample(process: psutil.Process, folder: Path, report: Report, until: float) -> None:
    """Kill the process of a random server every second, unless it is down already, and look at the aggregator."""
    while time.monotonic() < until:
        await asyncio.sleep(1)
        children = {child.pid: child for child in process.children()}
        report.memory_mb.append(round(process.memory_info().rss / 1024**2, 1))
        report.descriptors.append(process.num_fds())
        report.threads.append(process.num_threads())
        report.processes.append(len(children))
        pid = int((folder / f"s{random.randrange(CHILDREN)}").read_text().split()[-1])
        if pid in children:
            children[pid].kill()
            report.kills += 1


async def soak(folder: Path, seconds: float) -> Report:
    """Run it. Each server records its process ids in a file of its name in the folder."""
    report = Report()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fastmcp_aggregator",
        str(folder / "mcp.json"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    connection = Connection(process, report)
    await connection.ask("initialize", HELLO)
    connection.tell({"method": "notifications/initialized"})
    await connection.ask("tools/list", {})
    began = time.monotonic()
    until = began + seconds
    watched = psutil.Process(process.pid)
    callers = [call_for(connection, report, until, caller) for caller in range(CALLERS)]
    await asyncio.gather(kill_and_sample(watched, folder, report, until), *callers)
    report.seconds = round(time.monotonic() - began, 1)
    started = watched.children(recursive=True)
    assert process.stdin is not None
    process.stdin.close()
    await asyncio.wait_for(process.wait(), 60)
    _, alive = psutil.wait_procs(started, timeout=5)
    report.left_behind = len(alive)
    return report


def entry_of(name: str, folder: Path) -> dict[str, Any]:
    """The config entry of one server."""
    options = {"name": name, "record": str(folder / name)}
    return {"command": sys.executable, "args": ["-S", str(LEAN_CHILD), json.dumps(options)]}


def main() -> None:
    """Soak, print what happened, write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "soak.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        servers = {f"s{i}": entry_of(f"s{i}", folder) for i in range(CHILDREN)}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        report = asyncio.run(soak(folder, arguments.seconds))
    arguments.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    for name, value in asdict(report).items():
        print(f"{name:26}", f"{value[0]} … {value[-1]}" if isinstance(value, list) and value else value)
    print("clean" if report.is_clean else "NOT CLEAN")
    sys.exit(not report.is_clean)


if __name__ == "__main__":
    main()
