"""What runs while a fault is measured: an aggregator as a process, its client, and a caller of the other servers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from support.harness import config
from support.wire import PipeClient

COMMAND = [sys.executable, "-m", "fastmcp_aggregator"]
_POLL = 0.002
"""Seconds between two looks at something that cannot be waited for."""
_MOST_LINES = 200_000
_STARTS = asyncio.Lock()
"""One program is started at a time: each takes the whole machine for a second."""


class Program:
    """An aggregator in a process of its own. `said` has the lines of its stderr with the times at which they came."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.client = PipeClient(process.stdout, process.stdin.write, modern=False, name="faults")
        self.said: list[tuple[float, str]] = []
        self._listening = asyncio.create_task(self._listen())

    @property
    def watched(self) -> psutil.Process:
        """The process, for its memory and children."""
        return psutil.Process(self.process.pid)

    async def ready(self) -> None:
        """Do the client's handshake and wait for the first list.

        Raises:
            RuntimeError: it did not come, with what the program has said.
        """
        try:
            await self.client.start()
            await self.client.result("tools/list")
        except TimeoutError:
            raise RuntimeError("".join(line for _, line in self.said) or "it says nothing") from None

    def times(self, text: str) -> list[float]:
        """When it said this."""
        return [when for when, line in self.said if text in line]

    async def told(self, text: str, count: int = 1) -> float:
        """Wait until it has said this so many times; when that was."""
        await seen(lambda: len(self.times(text)) >= count)
        return self.times(text)[count - 1]

    async def pid_of(self, key: str) -> int:
        """The process id of a server, which is started again by this if it is down."""
        while "error" in (answer := await self.client.send("tools/call", {"name": f"{key}:pid"})):
            await asyncio.sleep(_POLL)
        pid: int = json.loads(answer["result"]["content"][0]["text"])["pid"]
        return pid

    async def hold(self, key: str, count: int = 1) -> list[asyncio.Future[dict[str, Any]]]:
        """Calls that the server has got and does not answer."""
        heard = len(self.times(f"[{key}] holding"))
        calls = [self.client.begin("tools/call", {"name": f"{key}:hold"})[1] for _ in range(count)]
        await self.told(f"[{key}] holding", heard + count)
        return calls

    async def silent(self) -> None:
        """Wait until nobody can write to its stderr any more: it has ended, and so have all its servers."""
        await asyncio.shield(self._listening)

    async def ended(self) -> tuple[int, float]:
        """Wait for its end; the exit code, and when that was."""
        code = await self.process.wait()
        return code, time.monotonic()

    async def close(self) -> None:
        """End it, whatever it does."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.client.close()
        await self._listening

    async def _listen(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if len(self.said) < _MOST_LINES:
                self.said.append((time.monotonic(), line.decode(errors="replace")))


@asynccontextmanager
async def program(
    folder: Path,
    *options: str,
    handshake: bool = True,
    settings: dict[str, Any] | None = None,
    through: Sequence[str] = (),
    **servers: Any,
) -> AsyncIterator[Program]:
    """An aggregator of these servers, ready for calls; without `handshake`, its client has not said a word.

    `through` is a command that starts the one given after it.
    """
    document = folder / "mcp.json"
    document.write_text(json.dumps(config(**servers)))
    environment = {f"FASTMCP_AGGREGATOR_{name}".upper(): str(value) for name, value in (settings or {}).items()}
    async with AsyncExitStack() as stack:
        async with _STARTS:
            process = await asyncio.create_subprocess_exec(
                *through,
                *COMMAND,
                str(document),
                *options,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=64 * 1024 * 1024,
                env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), **environment},
            )
            running = Program(process)
            stack.push_async_callback(running.close)
            if handshake:
                await running.ready()
        yield running


@asynccontextmanager
async def http_program(folder: Path, **options: Any) -> AsyncIterator[tuple[Program, str]]:
    """An aggregator over HTTP, and its URL; with the options of `program`."""
    async with program(folder, "--transport", "http", "--port", "0", handshake=False, **options) as running:
        await running.told("serving on")
        line = next(line for _, line in running.said if "serving on" in line)
        yield running, line.split()[-1]


class Caller:
    """Calls one server without pause. `samples` are when each call began and how many seconds it took."""

    def __init__(self, client: PipeClient, key: str) -> None:
        self._client = client
        self._name = f"{key}:echo"
        self.samples: list[tuple[float, float]] = []
        self.errors = 0

    async def __aenter__(self) -> Self:
        self._calling = asyncio.create_task(self._call())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._calling.cancel()
        await asyncio.gather(self._calling, return_exceptions=True)

    def within(self, windows: list[tuple[float, float]]) -> list[list[float]]:
        """The seconds of the calls that began in each of these windows of time."""
        return [[took for began, took in self.samples if start <= began < end] for start, end in windows]

    async def _call(self) -> None:
        while True:
            began = time.monotonic()
            answer = await self._client.begin("tools/call", {"name": self._name})[1]
            self.samples.append((began, time.monotonic() - began))
            self.errors += "error" in answer


async def window(seconds: float) -> tuple[float, float]:
    """A window of time from now on."""
    began = time.monotonic()
    await asyncio.sleep(seconds)
    return began, time.monotonic()


async def seen(condition: Callable[[], Any], within: float = 60.0) -> float:
    """Wait until something can be seen; when that was, or after `within` seconds that it was not (infinity)."""
    give_up = time.monotonic() + within
    while not condition():
        if time.monotonic() > give_up:
            return float("inf")
        await asyncio.sleep(_POLL)
    return time.monotonic()


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or only its exit code."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def are_gone(pids: list[int]) -> bool:
    """Whether none of them is left."""
    return all(map(is_gone, pids))


def recorded(path: Path) -> list[int]:
    """The process ids in a file that servers have written them to."""
    return [int(word) for word in path.read_text().split()] if path.exists() else []


class Memory:
    """How much a process grows while this is open, in MiB."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._before = process.memory_info().rss
        self._most = self._before

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)

    @property
    def grown(self) -> float:
        """MiB at the highest point, above the beginning."""
        return (self._most - self._before) / 1024**2

    async def _watch(self) -> None:
        while True:
            self._most = max(self._most, self._process.memory_info().rss)
            await asyncio.sleep(0.005)
