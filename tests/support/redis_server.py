"""A Redis of a test's own, on a socket in a folder or on a port. Debian has it as the package `redis-server`."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from support.harness import until

needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")


class RedisServer:
    """It listens on a socket; with `port`, there too. `password` is what it asks for. Its clients wait for as many
    seconds as `timeout` says."""

    def __init__(self, folder: Path, *, port: int = 0, password: str = "", timeout: float | None = None) -> None:
        self._folder = folder
        waiting = "" if timeout is None else f"?socket_timeout={timeout}&socket_connect_timeout={timeout}"
        self.url = f"unix://{':' + password + '@' if password else ''}{folder}/redis.sock{waiting}"
        self._port = port
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        options = {
            "port": str(self._port),
            "unixsocket": f"{self._folder}/redis.sock",
            "dir": str(self._folder),
            "save": "",
        }
        if self._password:
            options["requirepass"] = self._password
        line = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(["redis-server", *line], stdout=subprocess.DEVNULL)
        await until(lambda: _accepts(self._folder / "redis.sock"))

    def pause(self) -> None:
        """Let it hang."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it work again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            (self._folder / "redis.sock").unlink(missing_ok=True)


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
