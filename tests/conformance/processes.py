"""Servers as processes, on ports that they choose and say."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60.0
"""Seconds that a server has to say its URL, and to end."""


@contextmanager
def serving(command: Sequence[str], log: Path, announcement: str) -> Iterator[str]:
    """Run a server until the end of the block; the URL that it says on stderr behind `announcement`.

    Raises:
        RuntimeError: it did not say it, or it ended before the end of the block.
    """
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command, env=_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
        )
    try:
        yield _url(process, log, announcement)
        if process.poll() is not None:
            raise _ended(process, log)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


def _environment() -> dict[str, str]:
    """Ours, without what would change the settings of FastMCP or the aggregator."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FASTMCP_")}


def _url(process: subprocess.Popen[bytes], log: Path, announcement: str) -> str:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := re.search(rf"{announcement} (http://\S+)", log.read_text(errors="replace")):
            return found[1]
        if process.poll() is not None:
            raise _ended(process, log)
        time.sleep(0.05)
    raise RuntimeError(f"no URL after {PATIENCE:g} s from: {process.args!r}\n{_tail(log)}")


def _ended(process: subprocess.Popen[bytes], log: Path) -> RuntimeError:
    return RuntimeError(f"ended with code {process.returncode}: {process.args!r}\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
