"""Joined writes: what is written in one turn of the event loop goes out in one system call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_MOST_JOINED = 64 * 1024
"""Bytes that are kept, at most, so that whoever writes learns soon of a reader that does not read."""


class JoinedWrites:
    """Bytes on their way to one pipe or socket."""

    __slots__ = ("_kept", "_size", "_write")

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._kept: list[bytes] = []
        self._size = 0

    def now(self, data: bytes) -> None:
        """Write, after what was kept."""
        if self._kept:
            self._kept.append(data)
            self.flush()
        else:
            self._write(data)

    def soon(self, data: bytes) -> None:
        """Keep the bytes until the turn is over, or there are many."""
        if not self._kept:
            asyncio.get_running_loop().call_soon(self.flush)
        self._kept.append(data)
        self._size += len(data)
        if self._size > _MOST_JOINED:
            self.flush()

    def flush(self) -> None:
        """Write what was kept."""
        if self._kept:
            data = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
            self._kept.clear()
            self._size = 0
            self._write(data)
