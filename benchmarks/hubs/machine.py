"""A machine of its own for a benchmark: a home, folders for sockets and caches, clients on pipes, what runs there."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LEAN = Path(__file__).parents[2] / "tests" / "support" / "programs" / "lean_child.py"
PROGRAM = str(Path(sys.executable).parent / "fastmcp-aggregator")
_MARK = "HUB_BENCHMARK"


class Machine:
    """Everything that is started here has its mark in its environment, so that what is left is found."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.root = root
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "XDG_CACHE_HOME": str(root / "cache"),
            "XDG_RUNTIME_DIR": str(root),
            _MARK: str(root),
            **{f"FASTMCP_AGGREGATOR_{name.upper()}": value for name, value in settings.items()},
        }

    def config(self, **servers: dict[str, Any]) -> str:
        path = self.root / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}))
        return str(path)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([PROGRAM, *arguments], env=self.environ, capture_output=True, text=True, check=False)

    def hubs(self) -> list[int]:
        """The processes of hubs."""
        return [pid for pid in self.processes() if b"\0hub\0--id=" in _read(f"/proc/{pid}/cmdline")]

    def processes(self) -> list[int]:
        """All that was started here, by the mark in its environment; servers have none."""
        mark = f"{_MARK}={self.root}".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if mark in _read(f"/proc/{pid}/environ").split(b"\0")]

    def servers(self) -> list[int]:
        """Servers: they have no mark, for their environment is not that of the hub, but this home."""
        home = f"HOME={self.root}".encode()
        ours = set(self.processes())
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if pid not in ours and home in _read(f"/proc/{pid}/environ").split(b"\0")]


@contextmanager
def machine(**settings: str) -> Iterator[Machine]:
    """One, of which nothing is left at the end."""
    made = Machine(Path(tempfile.mkdtemp(prefix="hubs-", dir="/tmp")), **settings)
    try:
        yield made
    finally:
        for pid in [*made.processes(), *made.servers()]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(made.root, ignore_errors=True)


def lean(**options: Any) -> dict[str, Any]:
    """A server without an SDK."""
    return {"command": sys.executable, "args": ["-S", str(LEAN), json.dumps(options).replace("$", "$$")]}


class Client:
    """A client on pipes, which waits for each answer."""

    def __init__(
        self,
        machine: Machine,
        *arguments: str,
        program: Sequence[str] = (PROGRAM,),
        name: str = "x",
        barrier: int | None = None,
    ) -> None:
        """With a `barrier`, the program begins when the other end of that pipe is closed, and runs when nothing else
        does: hundreds leave little to others, even with the lowest nice value each.
        """
        command = [*program, *arguments]
        if barrier is not None:
            command = ["chrt", "--idle", "0", "sh", "-c", f'read _ <&{barrier}; exec "$@" {barrier}<&-', "sh", *command]
        self.process = subprocess.Popen(
            command,
            pass_fds=() if barrier is None else (barrier,),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=machine.environ,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._lines = iter(self.stdout.readline, b"")
        self._ids = itertools.count(1)
        self.name = name

    def send(self, **message: Any) -> None:
        self.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.stdin.flush()

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        request_id = next(self._ids)
        self.send(id=request_id, method=method, params=params)
        while (message := self.read()).get("id") != request_id:
            pass
        return message

    def read(self) -> dict[str, Any]:
        """The next message.

        Raises:
            EOFError: there is none.
        """
        for line in self._lines:
            message: dict[str, Any] = json.loads(line)
            return message
        raise EOFError

    def initialize(self) -> dict[str, Any]:
        about = {"name": self.name, "version": "1"}
        answer = self.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
        self.send(method="notifications/initialized")
        return answer

    def said(self) -> str:
        """What it has written to stderr and nobody has read, up to 64 KiB."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        with suppress(BlockingIOError):
            return os.read(self.process.stderr.fileno(), 65536).decode()
        return ""

    def rss(self) -> int:
        """KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def leave(self) -> None:
        """Close its end of stdin."""
        with suppress(BrokenPipeError):
            self.stdin.close()

    def close(self) -> int:
        """Leave, and wait for the end of the program; its exit code."""
        self.leave()
        code = self.process.wait(60)
        self.stdout.close()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


def until(reached: Any, patience: float = 30.0) -> float:
    """Wait; the seconds that it took."""
    began = time.perf_counter()
    while not reached():
        if time.perf_counter() - began > patience:
            raise TimeoutError
        time.sleep(0.01)
    return time.perf_counter() - began


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
