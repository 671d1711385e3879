"""The client's end of a bridge: its stdin and stdout."""

from __future__ import annotations

import os
import stat

from fastmcp_aggregator.attach.connection import HIGH_WATER
from fastmcp_aggregator.pipe.lines import LINE_LIMIT, LineSplitter

_CHUNK = 64 * 1024


class ClientEnd:
    """Two descriptors. What is written waits for a client that does not read; where it can, nothing blocks."""

    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.has_left = False
        """Whether the client has closed our stdin."""
        self.is_gone = False
        """Whether nobody reads our stdout."""
        self._lines = LineSplitter(LINE_LIMIT)
        self._unwritten = bytearray()
        self._was_blocking = _does_not_block(stdout)

    @property
    def has_room(self) -> bool:
        return len(self._unwritten) < HIGH_WATER

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def read(self) -> list[bytes]:
        """The lines that have come."""
        try:
            data = os.read(self.stdin, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if data:
            return self._lines.feed(data)
        self.has_left = True
        return self._lines.end()

    def write(self, data: bytes) -> None:
        if self._unwritten:
            self._unwritten += data
        else:
            self._unwritten += data[self._written(data) :]

    def flush(self) -> None:
        """Write what the client takes now."""
        if self._unwritten:
            del self._unwritten[: self._written(self._unwritten)]

    def close(self) -> None:
        """Write the rest, for as long as it takes, and leave the descriptor as it was."""
        if self._was_blocking:
            os.set_blocking(self.stdout, True)
        while self._unwritten and not self.is_gone:
            self.flush()

    def _written(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self.stdout, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.is_gone = True
            return len(data)


def _does_not_block(descriptor: int) -> bool:
    """Let writing to a pipe or socket not block; whether it did."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) or not os.get_blocking(descriptor):
        return False
    os.set_blocking(descriptor, False)
    return True
