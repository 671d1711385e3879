"""The connection of a bridge to what serves its client: a hub, or a server of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from enum import Enum, auto

from fastmcp_aggregator.pipe.lines import LINE_LIMIT, LineSplitter

HIGH_WATER = 1024 * 1024
"""Bytes that wait to be written, from which on no more is read for it."""
_CHUNK = 64 * 1024
"""Bytes. More than 128 KiB the C library maps anew for each read, which takes longer than the read."""


class ConnectionState(Enum):
    """The progress of a connection."""

    GREETING = auto()
    """The hub has not said yet that it serves."""
    OPEN = auto()
    ENDING = auto()
    """The hub takes no new requests, and answers what is open."""


class Writer:
    """Writes what the other end takes now; the rest waits. Where it can, nothing blocks."""

    is_gone = False
    """True once the peer no longer reads; its data from before can still be read."""

    def __init__(self) -> None:
        self._unwritten = bytearray()

    @property
    def has_room(self) -> bool:
        return len(self._unwritten) < HIGH_WATER

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def write(self, data: bytes) -> None:
        if self._unwritten:
            self._unwritten += data
        elif data:
            self._unwritten += data[self._written(data) :]

    def flush(self) -> None:
        if self._unwritten:
            del self._unwritten[: self._written(self._unwritten)]

    def _written(self, data: bytes | bytearray) -> int:
        try:
            return self._send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.is_gone = True
            return len(data)

    def _send(self, data: bytes | bytearray) -> int:
        raise NotImplementedError


class Connection(Writer):
    def __init__(
        self,
        peer: socket.socket,
        *,
        write_end: socket.socket | None = None,
        greeting: bytes = b"",
        exit_code: Callable[[], int] | None = None,
    ) -> None:
        """`write_end` is what is written to, if it is another socket than the one that is read; `exit_code`
        waits for that of a server of the bridge's own, which needs no greeting.
        """
        super().__init__()
        self.peer = peer
        self.write_end = peer if write_end is None else write_end
        self.exit_code = exit_code
        self.state = ConnectionState.OPEN if exit_code is not None else ConnectionState.GREETING
        self._began = time.monotonic()
        self.is_lost = False
        self._lines = LineSplitter(LINE_LIMIT)
        self._is_finished = False
        self.write(greeting)

    @property
    def age(self) -> float:
        """Seconds since it was made or, if it is open, has been."""
        return time.monotonic() - self._began

    def begin(self) -> None:
        self.state, self._began = ConnectionState.OPEN, time.monotonic()

    def flush(self) -> None:
        """Write what the other end takes now; then the end, if there is no more to come."""
        super().flush()
        if self._is_finished and not self._unwritten and not self.is_lost:
            try:
                self.write_end.shutdown(socket.SHUT_WR)
            except OSError:
                self.is_lost = True

    def finish(self) -> None:
        """Note that nothing more will be written."""
        if not self._is_finished:
            self._is_finished = True
            self.flush()

    def read(self) -> list[bytes]:
        """The lines that have come; at the end, `is_lost` is set."""
        try:
            data = self.peer.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.is_lost = True
            return []
        return self._lines.feed(data)

    def close(self) -> None:
        self.peer.close()
        self.write_end.close()

    def _send(self, data: bytes | bytearray) -> int:
        return self.write_end.send(data)
