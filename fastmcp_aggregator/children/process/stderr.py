"""The stderr of a child: drained always, passed on line by line under its key, its tail kept for error messages.

All lines also go to a file, if one is wanted. Wherever they go, the secrets of the child's config are redacted.
Where they are passed on, control characters are escaped.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from fastmcp_aggregator.children.process.stderr_file import StderrFile, open_stderr_file
from fastmcp_aggregator.escaping import json_text, printable
from fastmcp_aggregator.observability.redaction import Redactor
from fastmcp_aggregator.pipe.lines import LineSplitter

NO_ROOTS = "roots/list: several clients may share this instance of the server, so it is told the roots of none of them"
"""The answer to a server that asks for roots. Many repeat it on stderr at each start, and it is not passed on."""
_LINE_LIMIT = 64 * 1024 - 1
_OF_NO_ROOTS = NO_ROOTS.encode()
_TAIL_BYTES = 64 * 1024
_PIECE = 1024
"""Characters, of up to 4 bytes: a pipe that select reports writable takes 4096 bytes without blocking (PIPE_BUF)."""

_MOST_LINES, _WINDOW = 1000, 10.0
"""Lines of one child that are passed on in so many seconds: one that floods must not hide what others say."""
_JSON_TEXT = 300
"""Characters of a line that are passed on as JSON, where one may take twelve bytes, beside the other fields."""
_MOST_A_SECOND = 100_000
"""Lines that are read of a child that says many at once: thousands of empty ones come in one read."""
_LEFT_OUT = b"more than %d lines in %d s: the others are left out here" % (_MOST_LINES, _WINDOW)


class ChildStderr:
    """The stderr of one child: drained always, kept up to 64 KiB, passed on while ours can take it."""

    def __init__(
        self,
        server_key: str,
        directory: Path | None = None,
        *,
        secrets: Callable[[], Iterable[str]] = tuple,
        as_json: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`directory` is where a file of it is kept; `as_json`, how it is passed on. `secrets` are asked for once, when
        something is said.
        """
        self._key = server_key
        self._directory = directory
        self._secrets = secrets
        self._as_json = as_json
        self._clock = clock
        self._file: StderrFile | None = None
        self._splitter = LineSplitter(_LINE_LIMIT)
        self._tail = bytearray()
        """Whole lines, of which it is cut to the last ones now and then."""
        self._window_ends = 0.0
        self._passed_on = 0
        """Lines since this window has begun."""
        self.dropped_lines = 0
        """Lines that were not passed on because they were too many."""

    def feed(self, data: bytes) -> float:
        """Take what the child has said; return for how many seconds it is not to be read."""
        lines = self._splitter.feed(data)
        self._take(lines)
        return len(lines) / _MOST_A_SECOND if len(lines) > _MOST_LINES else 0.0

    def end(self) -> None:
        """Handle end of file: take what stands after the last newline."""
        self._take(self._splitter.end())
        if self._file is not None:
            self._file.close()
            self._file = None

    def tail(self, lines: int = 20) -> tuple[str, ...]:
        """Return the last lines, oldest first."""
        self._cut_tail()
        return tuple(map(_text, self._tail.split(b"\n")[:-1][-lines:]))

    def _cut_tail(self) -> None:
        if (over := len(self._tail) - _TAIL_BYTES) > 0:
            del self._tail[: self._tail.index(b"\n", over - 1) + 1]

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(self._secrets())

    def _take(self, lines: list[bytes]) -> None:
        if not lines:
            return
        data = self._redactor.data(b"\n".join(lines))
        lines = data.split(b"\n")
        self._tail += data + b"\n"
        if len(self._tail) > 2 * _TAIL_BYTES:
            self._cut_tail()
        self._keep(data)
        if _OF_NO_ROOTS in data:
            lines = [line for line in lines if _OF_NO_ROOTS not in line]
        _pass_on(map(self._shown, self._some(lines)))

    def _some(self, lines: list[bytes]) -> list[bytes]:
        """The lines that are passed on; where some are not, that is said instead of them, once."""
        now = self._clock()
        if now >= self._window_ends:
            self._window_ends, self._passed_on = now + _WINDOW, 0
        before, self._passed_on = self._passed_on, self._passed_on + len(lines)
        if self._passed_on <= _MOST_LINES:
            return lines
        taken = max(0, _MOST_LINES - before)
        self.dropped_lines += len(lines) - taken
        return [*lines[:taken], _LEFT_OUT] if before <= _MOST_LINES else []

    def _shown(self, line: bytes) -> str:
        if not self._as_json:
            return printable(f"[{self._key}] {_text(line)}"[:_PIECE], keep="\t")[: _PIECE - 1] + "\n"
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        fields = {"event": _text(line)[:_JSON_TEXT], "server": self._key, "timestamp": now, "level": "info"}
        return json_text({**fields, "logger": "stderr"}) + "\n"

    def _keep(self, lines: bytes) -> None:
        if self._file is None and self._directory is not None:
            self._file = open_stderr_file(self._directory, self._key)
        if self._file is not None:
            self._file.write(lines + b"\n")


def _text(line: bytes | bytearray) -> str:
    return line.decode(errors="replace").rstrip("\r")


def _pass_on(lines: Iterable[str]) -> None:
    """Write to our stderr, or drop what it does not take: a client that does not read must not stop the event loop."""
    stream = sys.stderr
    try:
        for piece in _pieces(lines):
            if not stream.isatty() and not _is_writable(stream.fileno()):
                return
            stream.write(piece)
            stream.flush()
    except (OSError, ValueError, AttributeError):
        return


def _pieces(lines: Iterable[str]) -> Iterator[str]:
    """Whole lines, as many together as can be written without blocking: a write for each would be slow in a flood."""
    piece = ""
    for line in lines:
        if len(piece) + len(line) > _PIECE:
            yield piece
            piece = ""
        piece += line
    yield piece


def _is_writable(descriptor: int) -> bool:
    # Windows tells it of sockets alone.
    return sys.platform == "win32" or bool(select.select([], [descriptor], [], 0)[1])
