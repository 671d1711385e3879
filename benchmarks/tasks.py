"""Tasks of many principals over HTTP, at two replicas, while servers are killed at random.

    PYTHONPATH=tests python benchmarks/tasks.py [--tasks N] [--principals N] [--seconds N] [--json FILE]

Two replicas with one Redis have a server on stdio, each its own, and one over HTTP. Each principal makes tasks at
either replica, and asks for them at either. Every five seconds a server is killed with SIGKILL. Each task has to come
to its end, or to an error that says that it is lost; one in four is also asked for, updated and cancelled by somebody
else, who has to be told what is told of a task that does not exist. Memory and descriptors of the replicas must not
grow. Exits with 1 if anything was readable or cancellable by another, lost, or grew. Needs redis-server.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import psutil
from support.harness import config, free_port, lean
from support.redis_server import RedisServer

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys

ROOT = Path(__file__).parent.parent
REMOTE = ROOT / "tests" / "conformance" / "extensions_server.py"
AT_ONCE = 64
KILL_INTERVAL = 5.0
META = "io.modelcontextprotocol/"
ENVELOPE = {
    f"{META}protocolVersion": "2026-07-28",
    f"{META}clientInfo": {"name": "tasks", "version": "1"},
    f"{META}clientCapabilities": {"extensions": {f"{META}tasks": {}}},
}
NO_TASK = {"code": -32602, "message": "Task not found"}
OVER = {"completed", "failed", "cancelled"}


@dataclass
class Report:
    """What happened; the first four must be 0."""

    readable_by_others: int = 0
    wrong: int = 0
    lost: int = 0
    left_behind: int = 0
    tasks: int = 0
    completed: int = 0
    not_made: Counter[str] = field(default_factory=Counter)
    ended_with: Counter[str] = field(default_factory=Counter)
    asked_by_others: int = 0
    requests: int = 0
    kills: int = 0
    seconds: float = 0.0
    memory_mb: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    @property
    def has_grown(self) -> bool:
        """Whether the last third is more than a tenth, and a little, above the middle one."""
        return any(grows(samples, room) for samples, room in ((self.memory_mb, 10), (self.descriptors, 20)))

    @property
    def is_clean(self) -> bool:
        """Whether all of it was as it has to be."""
        return not (self.readable_by_others or self.wrong or self.lost or self.left_behind or self.has_grown)


def grows(samples: list[Any], room: float) -> bool:
    """Whether the last third is more than a tenth, and some room, above the middle one."""
    third = len(samples) // 3
    return third > 3 and median(samples[-third:]) > median(samples[third:-third]) * 1.1 + room


class Principal:
    """Somebody with a key, at both replicas."""

    def __init__(self, name: str, key: str, urls: list[str], http: httpx2.AsyncClient, report: Report) -> None:
        self.name = name
        self._headers = {"X-API-Key": key, "Accept": "application/json, text/event-stream"}
        self._urls = urls
        self._http = http
        self._report = report

    async def ask(self, method: str, params: dict[str, Any], name: str) -> dict[str, Any]:
        """One request at one of the replicas; its response."""
        self._report.requests += 1
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}
        headers = {**self._headers, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
        response = await self._http.post(random.choice(self._urls), json=body, headers=headers)
        text = response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
            text = next(line for line in lines if line.strip())
        answer: dict[str, Any] = json.loads(text)
        return answer

    async def of_task(self, method: str, task_id: str, **more: Any) -> dict[str, Any]:
        """A request for a task."""
        return await self.ask(method, {"taskId": task_id, **more}, task_id)


async def live(owner: Principal, other: Principal, nonce: str, report: Report) -> None:
    """One task, from its beginning to its end."""
    arguments: dict[str, Any]
    if random.random() < 0.5:
        name, arguments = "local:task", {"polls": 2, "result": {"content": [{"type": "text", "text": nonce}]}}
    else:
        name, arguments = "remote:slow_compute", {"seconds": 0.2, "label": nonce}
    made = await owner.ask("tools/call", {"name": name, "arguments": arguments}, name)
    task_id = made.get("result", {}).get("taskId")
    if task_id is None:
        report.not_made[shown(made)] += 1
        return
    report.tasks += 1
    if random.random() < 0.25:
        await try_as_another(other, task_id, report)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = await owner.of_task("tasks/get", task_id)
        error, task = answer.get("error"), answer.get("result", {})
        if error is not None and error["code"] == -32602:
            report.ended_with["Task … not found"] += 1
            return
        if task.get("status") in OVER:
            judge(name, nonce, task, task_id, report)
            return
        await asyncio.sleep(0.1)
    report.lost += 1


def judge(name: str, nonce: str, task: dict[str, Any], task_id: str, report: Report) -> None:
    """Whether the end of a task is its own."""
    report.ended_with[task["status"]] += 1
    text = json.dumps(task.get("result"))
    is_its_own = task["taskId"] == task_id and (nonce in text or name.startswith("remote"))
    report.completed += task["status"] == "completed"
    report.wrong += not is_its_own or task["status"] != "completed"


async def try_as_another(other: Principal, task_id: str, report: Report) -> None:
    """What is not one's own is not there."""
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        report.asked_by_others += 1
        answer = await other.of_task(method, task_id, inputResponses={})
        report.readable_by_others += answer.get("error") != NO_TASK


def shown(answer: dict[str, Any]) -> str:
    """The kind of an error."""
    return f"{answer['error']['code']}" if "error" in answer else json.dumps(answer)[:200]


async def kill(replicas: list[psutil.Process], remote: Remote, report: Report) -> None:
    """Kill a server, again and again."""
    while True:
        await asyncio.sleep(KILL_INTERVAL)
        report.kills += 1
        if random.random() < 0.3:
            await remote.restart()
            continue
        children = random.choice(replicas).children()
        if children:
            with suppress(psutil.NoSuchProcess):
                random.choice(children).kill()


async def sample(replicas: list[psutil.Process], report: Report) -> None:
    """Look at the replicas, again and again."""
    while True:
        await asyncio.sleep(1)
        report.memory_mb.append(round(sum(each.memory_info().rss for each in replicas) / 1024**2, 1))
        report.descriptors.append(sum(each.num_fds() for each in replicas))


class Remote:
    """The server over HTTP, always at the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        quiet = asyncio.subprocess.DEVNULL
        command = [sys.executable, str(REMOTE), "--port", str(self.port)]
        self._process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def restart(self) -> None:
        """Kill it, and start another."""
        await self.stop()
        await self.start()


@asynccontextmanager
async def replica(folder: Path, redis: str) -> AsyncIterator[tuple[psutil.Process, str]]:
    """One of the aggregators, and its URL."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("FASTMCP_")}
    settings = {"KEYS_FILE": folder / "keys.json", "REDIS_URL": redis, "RATE_LIMIT": 0, "DASHBOARD": "false"}
    env |= {f"FASTMCP_AGGREGATOR_{name}": str(value) for name, value in settings.items() if name != "DASHBOARD"}
    command = [sys.executable, "-m", "fastmcp_aggregator", str(folder / "config.json"), "--transport", "http"]
    log = (folder / f"{free_port()}.log").open("wb+")
    process = await asyncio.create_subprocess_exec(*command, "--port", "0", env=env, stdin=-3, stdout=-3, stderr=log)
    try:
        while not (found := [word for word in Path(log.name).read_text().split() if word.endswith("/mcp")]):
            await asyncio.sleep(0.05)
            assert process.returncode is None, Path(log.name).read_text()
        yield psutil.Process(process.pid), found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
        log.close()


async def run(tasks: int, principals: int, seconds: float) -> Report:
    """All of it; after so many seconds no more tasks are begun."""
    report = Report()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis, remote = RedisServer(folder), Remote()
        stack.callback(redis.stop)
        stack.push_async_callback(remote.stop)
        await asyncio.gather(redis.start(), remote.start())
        made = {f"p{number}": new_key(f"p{number}", ["default"], None) for number in range(principals)}
        write_keys(folder / "keys.json", [kept for _, kept in made.values()])
        local = lean(era="modern", tool_names=["task"])
        document = config(local=local, remote={"url": f"http://127.0.0.1:{remote.port}/mcp"})
        (folder / "config.json").write_text(json.dumps(document))
        replicas = [await stack.enter_async_context(replica(folder, redis.url)) for _ in range(2)]
        processes, urls = [each for each, _ in replicas], [url for _, url in replicas]
        children = [child for process in processes for child in process.children(recursive=True)]
        limits = httpx2.Limits(max_keepalive_connections=0)  # one that is kept may be closed just when it is used
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=120, limits=limits, trust_env=False))
        callers = [Principal(name, key, urls, http, report) for name, (key, _) in made.items()]
        watching = [asyncio.create_task(kill(processes, remote, report))]
        watching.append(asyncio.create_task(sample(processes, report)))
        began, numbers = time.monotonic(), itertools.count()

        async def work() -> None:
            while report.tasks < tasks and time.monotonic() < began + seconds:
                number = next(numbers)
                owner, other = random.sample(callers, 2)
                try:
                    await live(owner, other, f"nonce-{number}-", report)
                except httpx2.TransportError as error:
                    report.not_made[type(error).__name__] += 1

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        report.seconds = round(time.monotonic() - began, 1)
        for each in watching:
            each.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    report.left_behind = sum(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    return report


def main() -> int:
    """Run it, print what happened; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--principals", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which no more tasks are begun")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = asyncio.run(run(options.tasks, options.principals, options.seconds))
    text = json.dumps(vars(report), indent=1)
    if options.json:
        options.json.write_text(text)
    for name, value in vars(report).items():
        print(f"{name}: {[*value[:3], '…', *value[-3:]] if isinstance(value, list) else value}")
    print("clean" if report.is_clean else "NOT CLEAN")
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
