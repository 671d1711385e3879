"""Bytes in, whole lines out: linear in what it reads, bounded in what it keeps. Pure, without I/O."""

from __future__ import annotations

from collections.abc import Callable

LINE_LIMIT = 100 * 1024 * 1024
"""Bytes of one message on a pipe, unless something else is said."""
RESPONSE_LIMIT = 19 * 1024 * 1024 // 2
"""Bytes of a server's message, by default: the TypeScript SDK ends a connection on stdio over one of 10 MiB."""
EDGE = 256
"""Bytes of the beginning and of the end of an oversized line that are kept, to tell whose it is."""
ENDLESS_FACTOR = 3
"""A line that is so many times as long as the limit, and still goes on, is taken for one that never ends."""

OnOversized = Callable[[bytes, bytes | None], None]
"""Told the beginning and the end of a line that was dropped; no end is known of one that never ends."""


class LineSplitter:
    """Cuts a byte stream into lines.

    A line longer than `limit` bytes is dropped as it arrives, so that at most `limit` bytes are ever kept; its edges
    are given to `on_oversized`. Every byte is looked at once, however small the chunks are.
    """

    __slots__ = ("_endless", "_head", "_kept", "_limit", "_on_oversized", "_skipped", "_tail")

    def __init__(
        self, limit: int, on_oversized: OnOversized = lambda _head, _tail: None, *, endless_from: int = 0
    ) -> None:
        """A line of fewer than `endless_from` bytes is never taken for one that does not end."""
        self._limit = limit
        self._endless = max(limit * ENDLESS_FACTOR, endless_from)
        self._on_oversized = on_oversized
        self._kept = bytearray()
        self._skipped: int | None = None
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next chunk; return the lines it completes, without their newlines."""
        length = len(data) - 1
        if 0 <= data.find(b"\n") == length <= self._limit and not self._kept and self._skipped is None:
            return [data[:length]]
        if not self._kept and self._skipped is None and data.endswith(b"\n") and len(data) <= self._limit:
            return data[:-1].split(b"\n")  # as nearly all chunks are: messages, whole
        first, *rest = data.split(b"\n")
        if not rest:
            self._keep(first)
            return []
        last, begun = rest.pop(), self._finish(first)
        if rest and max(map(len, rest)) > self._limit:
            rest = [line for line in map(self._checked, rest) if line is not None]
        self._keep(last)
        return rest if begun is None else [begun, *rest]

    def end(self) -> list[bytes]:
        """The stream is over: return what stands after the last newline, if anything."""
        last = self._finish(b"")
        return [last] if last else []

    def _keep(self, part: bytes) -> None:
        if self._skipped is not None:
            self._skip(part)
        elif len(self._kept) + len(part) <= self._limit:
            self._kept += part
        else:
            self._head = bytes(self._kept[:EDGE] + part[:EDGE])[:EDGE]
            self._tail = bytes(self._kept[-EDGE:])
            self._skipped = len(self._kept)
            self._kept = bytearray()
            self._skip(part)

    def _skip(self, part: bytes) -> None:
        assert self._skipped is not None
        was_endless = self._skipped > self._endless
        self._skipped += len(part)
        self._tail = (self._tail + part[-EDGE:])[-EDGE:]
        if self._skipped > self._endless and not was_endless:
            self._on_oversized(self._head, None)

    def _finish(self, part: bytes) -> bytes | None:
        if not self._kept and self._skipped is None:
            return self._checked(part)
        self._keep(part)
        if self._skipped is None:
            line = bytes(self._kept)
            self._kept = bytearray()
            return line
        if self._skipped <= self._endless:
            self._on_oversized(self._head, self._tail)
        self._skipped = None
        return None

    def _checked(self, line: bytes) -> bytes | None:
        if len(line) <= self._limit:
            return line
        self._on_oversized(line[:EDGE], line[-EDGE:])
        return None
