"""Bounds on what is measured: time for each step, memory for each program."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from benchmarks.programs import Usage

MOST_MB = 1500
"""MiB that the process of a peer may take."""
_LOOKS_EACH = 1.0


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Let something take so long, whatever it waits for.

    Raises:
        TimeoutError: it took longer.
    """

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def memory_bound() -> Iterator[None]:
    """Kill what this process has started and takes too much memory; a look each second costs some microseconds."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOKS_EACH):
            for pid in children_of(os.getpid()):
                with suppress(OSError, IndexError):
                    if Usage(pid).rss_mb() > MOST_MB:
                        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = list[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(number) for number in task.read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    return [found for child in children_of(pid) for found in (child, *descendants(child))]
