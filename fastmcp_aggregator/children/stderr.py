"""What a child says on stderr: passed on line by line under its key, and the end of it kept for error messages."""

from __future__ import annotations

import select
import sys
from collections import deque

from fastmcp_aggregator.pipe.lines import LineSplitter

_LINE_LIMIT = 64 * 1024
_TAIL_BYTES = 64 * 1024
_ATOMIC_WRITE = 4096
"""POSIX: a pipe that select reports writable takes this many bytes without blocking (PIPE_BUF)."""


class ChildStderr:
    """The stderr of one child: drained always, kept up to 64 KiB, passed on while ours can take it."""

    def __init__(self, server_key: str) -> None:
        self._mark = f"[{server_key}] "
        self._splitter = LineSplitter(_LINE_LIMIT)
        self._tail: deque[str] = deque()
        self._tail_size = 0

    def feed(self, data: bytes) -> None:
        """Take the next chunk from the pipe."""
        for line in self._splitter.feed(data):
            self._take(line)

    def end(self) -> None:
        """The pipe is closed: take what stands after the last newline."""
        for line in self._splitter.end():
            self._take(line)

    def tail(self, lines: int = 20) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._tail)[-lines:]

    def _take(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip("\r")
        self._tail.append(line)
        self._tail_size += len(line)
        while self._tail_size > _TAIL_BYTES:
            self._tail_size -= len(self._tail.popleft())
        _pass_on(self._mark + line)


def _pass_on(line: str) -> None:
    """Write to our stderr, or drop the line: a client that does not read our stderr must not stop the event loop."""
    stream = sys.stderr
    try:
        if stream.isatty() or _is_writable(stream.fileno()):
            stream.write(line[: _ATOMIC_WRITE // 4] + "\n")
            stream.flush()
    except (OSError, ValueError, AttributeError):
        return


def _is_writable(descriptor: int) -> bool:
    return bool(select.select([], [descriptor], [], 0)[1])
