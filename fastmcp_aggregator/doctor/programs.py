"""The programs that a config starts: where each is found, and the versions of those that run others."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fastmcp_aggregator.children.process.environment import SAFE_VARIABLES, advice_on_missing, located
from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.doctor.findings import Finding, Source

_RUNNERS = {
    "node": "https://nodejs.org",
    "npx": "https://nodejs.org",
    "uv": "https://docs.astral.sh/uv/",
    "uvx": "https://docs.astral.sh/uv/",
    "docker": "https://docs.docker.com/get-started/get-docker/",
    "podman": "https://podman.io",
    "deno": "https://deno.com",
    "bun": "https://bun.sh",
    "bunx": "https://bun.sh",
    "pipx": "https://pipx.pypa.io",
    "python": "https://www.python.org",
    "python3": "https://www.python.org",
}
"""Programs that run servers, and where they come from. They alone are asked for their version: they start nothing."""
_LONGEST_OUTPUT = 4096
_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")


@dataclass(frozen=True, slots=True)
class Program:
    """A command as it is written, where it was found, and its version if it is known."""

    command: str
    path: str | None
    version: str | None


def programs_of(config: McpConfig, *, timeout: float = 5.0) -> list[Program]:
    """Each program once, in the order of the servers. One has `timeout` seconds to tell its version."""
    found: dict[tuple[str, str | None], None] = {}
    for server in config.servers.values():
        if isinstance(server, StdioServer):
            found[server.label, location(server)] = None
    with ThreadPoolExecutor(max_workers=8) as pool:
        versions = pool.map(partial(_version, timeout=timeout), (path for _, path in found))
        return [Program(command, path, version) for (command, path), version in zip(found, versions, strict=True)]


def missing_programs(config: McpConfig, source: Source) -> Iterator[Finding]:
    """Servers whose program or folder is not there."""
    for server in config.known:
        if not isinstance(server, StdioServer):
            continue
        if server.cwd is not None and not Path(server.cwd).is_dir():
            yield source.finding("error", server.key, "its working directory (`cwd`) is not there", "cwd")
        if location(server) is None:
            home = _RUNNERS.get(Path(server.command).name)
            message = f"command not found: {server.label!r}; {advice_on_missing(server, home)}"
            yield source.finding("error", server.key, message, "command", written=server.label)


def location(server: StdioServer) -> str | None:
    """The path of the server's program."""
    return located(server, server.command)


def _version(path: str | None, timeout: float) -> str | None:
    """The version that a program reports, if this user would start it by its name: one that only the config leads to
    may have come with somebody's repository.
    """
    if path is None or not os.path.isabs(path) or Path(path).stem.lower() not in _RUNNERS:
        return None
    if path != shutil.which(Path(path).name, path=_own_folders()):
        return None
    safe = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
    try:
        with subprocess.Popen(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=safe,
            start_new_session=True,
        ) as asked:
            hurry = threading.Timer(timeout, _kill, [asked])
            hurry.start()
            assert asked.stdout is not None
            said = asked.stdout.read(_LONGEST_OUTPUT)
            hurry.cancel()
            _kill(asked)
    except OSError:
        return None
    found = _VERSION.search(said.decode("utf-8", "replace"))
    return found[0] if found else None


def _kill(program: subprocess.Popen[bytes]) -> None:
    """With what it has started, where a system has groups: that has its stdout, too."""
    if sys.platform == "win32":
        program.kill()
        return
    with suppress(ProcessLookupError, PermissionError):  # as macOS says of a group that has ended
        os.killpg(program.pid, signal.SIGKILL)


def _own_folders() -> str:
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if os.path.isabs(folder))
