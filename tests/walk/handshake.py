"""The handshake by each command: seconds from the start of the program to its answer, while others have all cores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "Zed", "version": "1"}},
}
PROGRAM = [sys.executable, "-m", "fastmcp_aggregator"]
ROUNDS = 5
_PATIENCE = 60.0


@contextmanager
def busy_cores() -> Iterator[None]:
    """A process for each core that never rests."""
    burn = [sys.executable, "-S", "-c", "while True: pass"]
    burning = [subprocess.Popen(burn) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def times(home: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, list[float]]:
    """By command, the seconds of each round. Cold: no hub runs, nothing is known of the servers; warm: the hub runs."""
    home.chmod(0o700)
    environ = {**environ, "XDG_RUNTIME_DIR": str(home)}
    serve, attach, warm = "`serve`, cold", "`attach`, cold", "`attach`, warm"
    found: dict[str, list[float]] = {serve: [], attach: [], warm: []}

    def measure(start: str, *, is_cold: bool) -> None:
        if is_cold:
            hub(home, environ, "stop", "--all")
            shutil.rmtree(home / "cache", ignore_errors=True)
        command = start.split("`")[1]
        found[start].append(first_answer([command, *arguments], home, environ))

    first_answer(["attach", *arguments], home, environ)  # so that all files have been read once
    with busy_cores():
        for _ in range(ROUNDS):
            measure(serve, is_cold=True)
            measure(attach, is_cold=True)
    deadline = time.monotonic() + _PATIENCE
    while '"initializing"' in hub(home, environ, "status", "--json") and time.monotonic() < deadline:
        time.sleep(1)
    with busy_cores():
        for _ in range(ROUNDS):
            measure(warm, is_cold=False)
    hub(home, environ, "stop", "--all")
    return found


def hub(home: Path, environ: Mapping[str, str], *command: str) -> str:
    """What a command for hubs prints."""
    return subprocess.run(
        [*PROGRAM, *command], env=environ, cwd=home, capture_output=True, text=True, check=False, timeout=_PATIENCE
    ).stdout


def first_answer(arguments: Sequence[str], home: Path, environ: Mapping[str, str]) -> float:
    """The seconds that one client waits for the answer to its `initialize`; it leaves then."""
    began = time.monotonic()
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=home,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(HELLO).encode() + b"\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    took = time.monotonic() - began
    assert answer["result"]["serverInfo"], answer
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.read()
    process.wait(_PATIENCE)
    return took
