"""What is measured, as processes: aggregators of one checkout or several, lean children, bare uvicorn, mcp-hub."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.clients import LEGACY, HttpClient, StdioClient

HERE = Path(__file__).parent
ROOT = HERE.parent
LEAN_CHILD = ROOT / "tests" / "support" / "programs" / "lean_child.py"
TALKING_CHILD = LEAN_CHILD.with_name("talking_child.py")
BASE_TOOLS = 23
"""Tools that every lean child has."""
DIRECT = [sys.executable, "-S", str(LEAN_CHILD)]
"""The command of a lean child."""
PREFIX = "FASTMCP_AGGREGATOR_"
_PATIENCE = 60.0
_MIB = 1 << 20
_PROBE = """
import json, importlib.metadata as m, fastmcp_aggregator, platform
versions = {d.metadata["Name"].lower(): d.version for d in m.distributions()}
wanted = ("fastmcp", "fastmcp-slim", "mcp", "pydantic", "uvicorn", "h11", "httptools", "uvloop", "msgspec", "starlette")
print(json.dumps({
    "file": fastmcp_aggregator.__file__, "python": platform.python_version(),
    "versions": {name: versions.get(name) for name in wanted},
}))
"""


@dataclass(frozen=True)
class Package:
    """A checkout of the package: what runs it, and what it is."""

    label: str
    path: Path
    python: str
    about: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which it is the package that is imported."""
        return {**clean_environment(), "PYTHONPATH": str(self.path)}

    def command(self, *arguments: str) -> list[str]:
        """Its command line."""
        return [self.python, "-m", "fastmcp_aggregator", *arguments]


def clean_environment() -> dict[str, str]:
    """This process's environment, without settings of an aggregator; programs keep their bytecode in it."""
    unwanted = (PREFIX, "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return kept | {"XDG_CACHE_HOME": str(Path(tempfile.gettempdir()) / "fastmcp-aggregator-benchmarks")}


def package_of(text: str, folder: Path) -> Package:
    """The package that `[LABEL=]PATH` names; it is run by the checkout's `.venv`, if it has one.

    Raises:
        RuntimeError: another one would be imported.
    """
    label, _, name = text.rpartition("=")
    path = Path(name).resolve()
    own = path / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    environment = {**clean_environment(), "PYTHONPATH": str(path)}
    command = [python, "-c", _PROBE]
    probe = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    about = json.loads(probe.stdout) if probe.returncode == 0 else {"file": probe.stderr}
    imported = about.pop("file")
    if Path(imported).parent.parent != path:
        raise RuntimeError(f"{path} has no package that can be imported; what is: {imported}")
    commit = git(path, "rev-parse", "--short", "HEAD")
    about |= {"commit": commit, "is_changed": bool(git(path, "status", "--porcelain", "--", "fastmcp_aggregator"))}
    return Package(label or commit or path.name, path, python, about)


def git(path: Path, *arguments: str) -> str:
    """What git says of a checkout; nothing where there is none."""
    answer = subprocess.run(["git", "-C", str(path), *arguments], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


class Usage:
    """What a process has used."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = (~pid << 3) | 2
        """The process's CPU clock (`clock_getcpuclockid`), of nanoseconds where /proc has ticks."""

    def cpu(self) -> float:
        """Seconds of CPU of all its threads, without those of its children."""
        return time.clock_gettime(self._clock)

    def rss_mb(self) -> float:
        """MiB of its memory that are resident."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


class Programs:
    """Starts programs, in a folder for their files, and ends all of them at its own end."""

    def __init__(self, folder: Path, stack: ExitStack, mcp_hub: str | None) -> None:
        self.folder = folder
        self._mcp_hub = mcp_hub
        self._stack = stack
        self._count = 0

    def config(self, children: int, *, tools_each: int = BASE_TOOLS, program: Path = LEAN_CHILD) -> str:
        """Write an `mcpServers` file with so many children; its path."""
        options = json.dumps({"tools": tools_each - BASE_TOOLS})
        entry = {"command": sys.executable, "args": ["-S", str(program), options]}
        path = self.folder / f"{children}x{tools_each}-{program.stem}.json"
        path.write_text(json.dumps({"mcpServers": {f"s{i}": entry for i in range(children)}}))
        return str(path)

    def start_once(self, package: Package) -> None:
        """Have a package write its bytecode, which an installed one has: what compiles itself is larger, and slower."""
        config = self.config(1)
        for client in (self.aggregator(package, config), self.http_aggregator(package, config).client()):
            client.result("tools/call", {"name": "s0:echo", "arguments": {"x": 1}})

    def stdio(self, command: list[str], package: Package | None = None, **options: Any) -> StdioClient:
        """A client of a server on stdio."""
        environment = package.environment if package else clean_environment()
        client = StdioClient(command, cwd=self.folder, env=environment, stderr=self._new("stderr"), **options)
        self._stack.callback(client.close)
        return client

    def aggregator(self, package: Package, config: str, **options: Any) -> StdioClient:
        """A client of an aggregator on stdio that has listed its servers."""
        client = self.stdio(package.command(config), package, **options)
        client.result("tools/list", {})
        return client

    def http_aggregator(
        self, package: Package, config: str, *arguments: str, settings: Mapping[str, str] | None = None
    ) -> HttpServer:
        """An aggregator over HTTP."""
        command = package.command(config, "--transport", "http", "--port", "0", *arguments)
        environment = {**package.environment, **{PREFIX + name.upper(): v for name, v in (settings or {}).items()}}
        return self._served(command, environment, lambda said: after(said, "serving on http://127.0.0.1:"))

    def team_aggregator(self, package: Package, config: str, *, members: int = 1) -> HttpServer:
        """One with all that a team's has: API keys, a group, audit log, metrics, a limit that nobody reaches."""
        keys, groups = self._new("keys.json"), self._new("groups.json")
        groups.write_text(json.dumps({"team": {"servers": list(json.loads(Path(config).read_text())["mcpServers"])}}))
        given = [self._new_key(package, keys, f"member{number}") for number in range(members)]
        settings = {"keys_file": str(keys), "audit": str(self._new("audit")), "metrics": "true"}
        settings |= {"rate_limit": "1000000000", "rate_burst": "1000000"}
        server = self.http_aggregator(package, config, "--groups", str(groups), settings=settings)
        server.path = "/groups/team/mcp"
        server.keys = [*given]
        return server

    def _new_key(self, package: Package, file: Path, name: str) -> str:
        command = package.command("keys", "create", name, "--file", str(file), "--groups", "team")
        made = subprocess.run(command, cwd=self.folder, env=package.environment, check=True, capture_output=True)
        return made.stdout.decode().strip()

    def bare_uvicorn(self, parser: str) -> HttpServer:
        """uvicorn with an app that only answers; `parser` is h11 or httptools."""
        command = [sys.executable, str(HERE / "bare_server.py"), parser]
        return self._served(command, clean_environment(), lambda said: after(said, "serving on port "))

    def remote_child(self) -> tuple[HttpServer, str]:
        """A server over HTTP that answers at once; and the config of an aggregator with it alone."""
        server = self._served(
            [sys.executable, str(HERE / "remote_server.py")],
            clean_environment(),
            lambda said: after(said, "serving on port "),
        )
        config = self._new("remote.json")
        config.write_text(json.dumps({"mcpServers": {"s5": {"url": f"http://127.0.0.1:{server.port}/mcp"}}}))
        return server, str(config)

    def mcp_hub(self, config: str) -> HttpServer | None:
        """mcp-hub, once its servers are connected; None where it is not installed."""
        if self._mcp_hub is None:
            return None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = clean_environment() | {"HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder)}
        command = [self._mcp_hub, "--port", str(port), "--config", config]
        return self._served(command, environment, lambda said: port if is_ready(port) else None)

    def _served(
        self, command: list[str], environment: dict[str, str], port_in: Callable[[str], int | None]
    ) -> HttpServer:
        output = self._new("output")
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self._stack.callback(end, process)
        deadline = time.monotonic() + _PATIENCE
        while (port := port_in(said := output.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} does not serve: {said[-2000:]}")
            time.sleep(0.01)
        return HttpServer(process, port, self._stack)

    def _new(self, name: str) -> Path:
        self._count += 1
        return self.folder / f"{self._count}-{name}"


class HttpServer:
    """A running HTTP server; `path` is that of its MCP endpoint, `keys` are those of its callers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, stack: ExitStack) -> None:
        self.port = port
        self.pid = process.pid
        self.path = "/mcp"
        self.keys: list[str | None] = [None]
        self._stack = stack

    def client(self, era: str = LEGACY, *, is_mcp: bool = True, caller: int = 0, **options: Any) -> HttpClient:
        """A client of it, which belongs to one of its callers."""
        key = self.keys[caller % len(self.keys)]
        client = HttpClient(self.port, self.path, era=era, key=key, **options)
        self._stack.callback(client.close)
        if is_mcp:
            client.start()
        return client


def after(said: str, words: str) -> int | None:
    """The number that a program has printed after these words, if it has."""
    digits = said.partition(words)[2].partition("\n")[0].partition("/")[0] if words in said else ""
    return int(digits) if digits.isdigit() and "\n" in said else None


def is_ready(port: int) -> bool:
    """Whether mcp-hub says that its servers are connected."""
    try:
        client = HttpClient(port)
    except OSError:
        return False
    response = client.exchange(client.plain_request("/api/health"))
    client.close()
    return b'"state":"ready"' in response


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, with a second signal or by force if it does not."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
        return


@contextmanager
def programs(folder: Path, mcp_hub: str | None = None) -> Iterator[Programs]:
    """Programs that are ended afterwards; `mcp_hub` is its executable, if it is installed."""
    with ExitStack() as stack:
        yield Programs(folder, stack, mcp_hub)


def version_of(executable: str | None) -> str | None:
    """What a program says of its version."""
    if executable is None:
        return None
    return subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def has_httptools() -> bool:
    """Whether uvicorn's second parser is installed here."""
    return find_spec("httptools") is not None
