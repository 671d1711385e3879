"""Joined writes: what is written in one turn of the event loop goes out in one system call."""

from __future__ import annotations

import asyncio
from typing import Any

_MOST_JOINED = 64 * 1024
"""Bytes that are kept, at most, so that whoever writes learns soon of a reader that does not read."""


class JoinedWrites(asyncio.Transport):
    """A transport that keeps what is written until the turn is over, or there is much of it."""

    def __init__(self, transport: Any) -> None:
        """`transport` is asyncio's, of a pipe or a socket."""
        super().__init__()
        self._transport = transport
        self._kept: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._kept:
            asyncio.get_running_loop().call_soon(self.flush)
        self._kept.append(bytes(data))
        self._size += len(data)
        if self._size > _MOST_JOINED:
            self.flush()

    def write_now(self, data: bytes) -> None:
        """Write at once, after what was kept."""
        if self._kept:
            self._kept.append(data)
            self.flush()
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write what was kept."""
        if self._kept:
            data = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
            self._kept.clear()
            self._size = 0
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._kept.clear()
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        closing: bool = self._transport.is_closing()
        return closing

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
