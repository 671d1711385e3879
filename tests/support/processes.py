"""What has become of processes that a test has seen."""

from __future__ import annotations

from pathlib import Path

import psutil


def is_gone(pid: int | None) -> bool:
    """Whether nothing of it is left but its entry in the process table; in a container nobody may reap it."""
    assert pid is not None
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def pids_in(record: Path) -> list[int]:
    """The processes that have written their ids there."""
    return [int(line) for line in record.read_text().split()]


def are_gone(record: Path) -> bool:
    """Whether there were processes that wrote their ids there, and all of them are gone."""
    return bool(pids_in(record)) and all(map(is_gone, pids_in(record)))


def complaints(stderr: bytes) -> list[str]:
    """What a program of ours says on stderr when something has happened that it has not expected."""
    lines = stderr.decode(errors="replace").splitlines()
    return [line for line in lines if line.startswith(("error:", "unexpected", "Traceback"))]
