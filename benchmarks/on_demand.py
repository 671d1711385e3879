"""Answers before anything runs, servers that run only when they are needed: `python -m benchmarks.on_demand [NAME …]`.

first      the first list from the start of the process, known before, of 10, 50 and 200 servers with 2000 tools in all
restart    a hub restarted with 100 servers that take 3 s each to start: when all is listed, and how many start at once
idle       processes and memory of 20 real servers of which 3 are called, after `idle_timeout`, and all running
call       a call to a sleeping server, against a start of the same server and a call to it, directly
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

SERVER = Path(__file__).with_name("offering_server.py")
TOOLS = 2000
ROUNDS = 7
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


class Client:
    """A client of a process on stdio; `began` is when it was started."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self._id = 0
        self.ask("initialize", HELLO)
        self._say({"method": "notifications/initialized"})

    def _say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The result of a request."""
        self._id += 1
        self._say({"id": self._id, "method": method, "params": params or {}})
        assert self.process.stdout is not None
        while True:
            message = json.loads(self.process.stdout.readline())
            if message.get("id") == self._id:
                return message["result"]

    def end(self) -> None:
        """Close it, and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Bench:
    """A folder with a config and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "mcp.json"

    def environment(self, **settings: object) -> dict[str, str]:
        """The variables of a program, with these settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FASTMCP_AGGREGATOR_")}
        own = {f"FASTMCP_AGGREGATOR_{name.upper()}": str(value) for name, value in settings.items()}
        return {**kept, "XDG_CACHE_HOME": str(self.folder / "cache"), **own}

    def write(self, servers: dict[str, Any]) -> None:
        """The config."""
        self.config.write_text(json.dumps({"mcpServers": servers}))

    @property
    def command(self) -> list[str]:
        """The aggregator on stdio."""
        return [sys.executable, "-m", "fastmcp_aggregator", str(self.config), "--no-strict"]

    @contextmanager
    def hub(self, **settings: object) -> Iterator[tuple[subprocess.Popen[bytes], str, float]]:
        """The aggregator over HTTP, its address, and when it was started."""
        began = time.perf_counter()
        log = self.folder / "hub.log"
        with log.open("wb") as file:
            command = [*self.command, "--transport", "http", "--port", "0"]
            process = subprocess.Popen(command, stdout=file, stderr=file, env=self.environment(**settings))
        try:
            while "serving on " not in (said := log.read_text()):
                time.sleep(0.01)
            yield process, said.split("serving on ")[1].split("/mcp")[0], began
        finally:
            process.terminate()
            process.wait()


def offering(**options: Any) -> dict[str, Any]:
    """An entry of the config."""
    return {"command": sys.executable, "args": ["-S", str(SERVER), json.dumps(options)]}


def learn(bench: Bench, servers: int) -> None:
    """A first run that lasts until everything is known."""
    shutil.rmtree(bench.folder / "cache", ignore_errors=True)
    client = Client(bench.command, bench.environment())
    folder = bench.folder / "cache" / "fastmcp-aggregator" / "catalogues"
    while len(list(folder.glob("*.catalogue.json"))) < servers or not list(folder.glob("*.answers")):
        client.ask("ping")
        time.sleep(0.1)
    client.end()


def first(bench: Bench) -> Iterator[str]:
    for servers in (10, 50, 200):
        bench.write({f"s{number}": offering(tools=TOOLS // servers) for number in range(servers)})
        learn(bench, servers)
        times: dict[str, list[float]] = {"initialize": [], "list": [], "asyncio": []}
        for _ in range(ROUNDS):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
            times["asyncio"].append(time.perf_counter() - began)
            client = Client(bench.command, bench.environment())
            times["initialize"].append(time.perf_counter() - client.began)
            listed = len(client.ask("tools/list")["tools"])
            times["list"].append(time.perf_counter() - client.began)
            assert listed == TOOLS, listed
            client.process.kill()
            client.process.wait()
        ratio = statistics.median(one / bare for one, bare in zip(times["list"], times["asyncio"], strict=True))
        medians = {name: f"{statistics.median(each) * 1000:.0f} ms" for name, each in times.items()}
        yield (
            f"{servers} servers: initialize {medians['initialize']}, list of {TOOLS} tools {medians['list']}; "
            f"{ratio:.1f} × `import asyncio` ({medians['asyncio']})"
        )


def restart(bench: Bench) -> Iterator[str]:
    servers, log = 100, bench.folder / "starts.log"
    bench.write({f"s{number}": offering(tools=10, delay=3, log=str(log)) for number in range(servers)})
    for name in ("first start", "restart"):
        log.unlink(missing_ok=True)
        with bench.hub(start="eager") as (_, address, began):
            first_listed, seconds = None, 0.0
            while first_listed != servers * 10:
                first_listed = len(_tools(address))
                seconds = time.perf_counter() - began
            serving = seconds
            while log.read_text().count("ready") < servers:
                time.sleep(0.2)
            up = time.perf_counter() - began
            time.sleep(2)  # what was listed last is written
        most = _most_at_once(log)
        yield f"{name}: all listed after {serving:.1f} s, all up after {up:.0f} s, at most {most} starting at a time"


def _tools(address: str) -> list[Any]:
    request = urllib.request.Request(
        f"{address}/mcp/tools/list", data=b"{}", headers={"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        listed: list[Any] = json.loads(response.read())["tools"]
        return listed


def _most_at_once(log: Path) -> int:
    events = sorted((float(when), 1 if what == "began" else -1) for what, when in map(str.split, log.open()))
    most = now = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most


def idle(bench: Bench) -> Iterator[str]:
    entry = {"command": sys.executable, "args": ["-m", "mcp_server_time"]}
    bench.write({f"time{number}": {**entry, "env": {"N": str(number)}} for number in range(20)})
    learn(bench, 20)
    for name, settings in (("all running", {"start": "eager"}), ("on demand, 3 called", {"idle_timeout": 20})):
        client = Client(bench.command, bench.environment(**settings))
        client.ask("tools/list")
        for number in range(3):
            arguments = {"name": f"time{number}:get_current_time", "arguments": {"timezone": "UTC"}}
            client.ask("tools/call", arguments)
        program = psutil.Process(client.process.pid)
        deadline = time.monotonic() + 120
        while name == "all running" and len(program.children()) < 20 and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(1)
        yield f"{name}: {_memory(program)}"
        if name != "all running":
            time.sleep(30)
            yield f"the same, after idle_timeout: {_memory(program)}"
        client.end()


def _memory(program: psutil.Process) -> str:
    servers = program.children(recursive=True)
    own, of_servers = program.memory_info().rss, 0
    for server in servers:
        with suppress(psutil.NoSuchProcess):
            of_servers += server.memory_info().rss
    return (
        f"{len(program.children())} servers, {of_servers / 2**20:.0f} MiB, and {own / 2**20:.0f} MiB of the aggregator"
    )


def call(bench: Bench) -> Iterator[str]:
    entry = offering(tools=10)
    bench.write({"s": entry})
    learn(bench, 1)
    client = Client(bench.command, bench.environment(idle_timeout=0.2))
    client.ask("tools/list")
    asleep, fresh = [], []
    program = psutil.Process(client.process.pid)
    for _ in range(30):
        while program.children():
            time.sleep(0.05)
        time.sleep(0.1)
        began = time.perf_counter()
        client.ask("tools/call", {"name": "s:tool_0", "arguments": {}})
        asleep.append(time.perf_counter() - began)
        direct = Client([entry["command"], *entry["args"]], dict(os.environ))
        direct.ask("tools/list")
        direct.ask("tools/call", {"name": "tool_0", "arguments": {}})
        fresh.append(time.perf_counter() - direct.began)
        direct.end()
    client.end()
    ratio = statistics.median(one / other for one, other in zip(asleep, fresh, strict=True))
    yield f"{statistics.median(asleep) * 1000:.0f} ms, directly {statistics.median(fresh) * 1000:.0f} ms: {ratio:.2f} ×"


ROWS: dict[str, Callable[[Bench], Iterator[str]]] = {"first": first, "restart": restart, "idle": idle, "call": call}


def main() -> None:
    """Measure, and print what was found."""
    for name in sys.argv[1:] or ROWS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for figure in ROWS[name](Bench(Path(folder))):
                print(f"{name:8} {figure}", flush=True)


if __name__ == "__main__":
    main()
