"""The client's end of a bridge: its stdin and stdout."""

from __future__ import annotations

import os
import stat
import sys

from fastmcp_aggregator.attach.connection import Writer
from fastmcp_aggregator.pipe.lines import LINE_LIMIT, LineSplitter

_CHUNK = 64 * 1024


class ClientEnd(Writer):
    """Two descriptors."""

    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        super().__init__()
        self.stdin = stdin
        self.stdout = stdout
        self.has_left = False
        self._lines = LineSplitter(LINE_LIMIT)
        self._was_blocking = False
        self._unblock()

    def read(self) -> list[bytes]:
        try:
            data = self._receive()
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if data:
            return self._lines.feed(data)
        self.has_left = True
        return self._lines.end()

    def close(self) -> None:
        """Write the rest, for as long as it takes, and leave the descriptor as it was."""
        if sys.platform != "win32" and self._was_blocking:
            os.set_blocking(self.stdout, True)
        while self._unwritten and not self.is_gone:
            self.flush()

    def _receive(self) -> bytes:
        return os.read(self.stdin, _CHUNK)

    def _send(self, data: bytes | bytearray) -> int:
        return os.write(self.stdout, data)

    def _unblock(self) -> None:
        mode = os.fstat(self.stdout).st_mode
        if sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) and os.get_blocking(self.stdout):
            self._was_blocking = True
            os.set_blocking(self.stdout, False)


class PumpedClientEnd(ClientEnd):
    """The same where only sockets can be waited for: two threads read and write."""

    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        from fastmcp_aggregator.attach.systems import pumps  # noqa: PLC0415 - elsewhere a bridge has no threads

        self._read_end = pumps.reading(stdin)
        self._write_end, self._writing = pumps.writing(stdout)
        super().__init__(self._read_end.fileno(), self._write_end.fileno())

    def close(self) -> None:
        self._write_end.setblocking(True)
        super().close()
        self._write_end.close()
        self._writing.join()

    def _receive(self) -> bytes:
        return self._read_end.recv(_CHUNK)

    def _send(self, data: bytes | bytearray) -> int:
        return self._write_end.send(data)

    def _unblock(self) -> None:
        self._write_end.setblocking(False)


def client_of_process() -> ClientEnd:
    return PumpedClientEnd() if sys.platform == "win32" else ClientEnd()
