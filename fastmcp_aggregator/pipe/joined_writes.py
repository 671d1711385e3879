"""Joined writes: what is written in one turn of the event loop goes out in one system call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

_MOST_JOINED = 64 * 1024
"""Bytes that are kept, at most, so that a writer learns soon of a reader that does not read."""


class JoinedWrites:
    """Keeps what is written to a pipe until the turn is over, or there is much of it."""

    __slots__ = ("_kept", "_size", "_write")

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` writes to the pipe; that it is lost, which is raised as OSError, has to be told by something else."""
        self._write = write
        self._kept: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        """Write with what is written in this turn."""
        if not self._kept:
            asyncio.get_running_loop().call_soon(self.flush)
        self._kept.append(data)
        self._size += len(data)
        if self._size > _MOST_JOINED:
            self.flush()

    def flush(self) -> None:
        if self._kept:
            data = b"".join(self._kept)
            self._kept.clear()
            self._size = 0
            with suppress(OSError):
                self._write(data)
