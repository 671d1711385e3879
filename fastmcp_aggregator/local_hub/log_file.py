"""The log file of a hub: its stderr with timestamps, rotated by size."""

from __future__ import annotations

import asyncio
import io
import os
import re
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from typing import BinaryIO

from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.concurrency.waits import meanwhile

LOG_SIZE_LIMIT = 5 * 1024**2
_LOOK_INTERVAL = 10.0
_DATED = re.compile(r'\{"|\d{4}-\d\d-\d\dT')
"""A line that has its time already: one of JSON, or of the log with `--debug`."""


class DatedLines(io.TextIOWrapper):
    """A text stream whose lines begin with the time (ISO 8601, UTC), unless they have one."""

    def __init__(self, buffer: BinaryIO) -> None:
        super().__init__(buffer, "utf-8", "backslashreplace", line_buffering=True)
        self._is_at_start = True

    def write(self, text: str) -> int:
        dated = []
        for line in text.splitlines(keepends=True):
            if self._is_at_start and not _DATED.match(line):
                dated.append(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} ")
            dated.append(line)
            self._is_at_start = line.endswith("\n")
        super().write("".join(dated))
        return len(text)


def rotated_log(path: str) -> AbstractAsyncContextManager[None]:
    """While stderr is this file: have it renamed to `path.1` when it is full."""
    return meanwhile(asyncio.create_task(_rotate(path), name="log of the hub"))


async def _rotate(path: str) -> None:
    while True:
        with suppress(OSError):
            rotate_if_full(path)
        await asyncio.sleep(_LOOK_INTERVAL)


def rotate_if_full(path: str) -> None:
    """Begin another file, if stderr is this one and it is full. Raises OSError: that is not possible."""
    here = os.fstat(2)
    if here.st_size <= LOG_SIZE_LIMIT or not os.path.samestat(os.stat(path, follow_symlinks=False), here):
        return
    os.replace(path, f"{path}.1")
    descriptor = system.open_log(path)
    try:
        for target in (1, 2):
            os.dup2(descriptor, target)
    finally:
        os.close(descriptor)
