"""Bytes in, whole lines out: linear in what it reads, bounded in what it keeps. Pure, without I/O."""

from __future__ import annotations

from collections.abc import Callable

HEAD = 256
"""Bytes of an oversized line that are kept, to tell whose it is."""


class LineSplitter:
    """Cuts a byte stream into lines.

    A line longer than `limit` bytes is dropped as it arrives, so that at most `limit` bytes are ever kept; it is
    counted in `oversized`, and its first bytes are given to `on_oversized`. Every byte is looked at once, however
    small the chunks are.
    """

    __slots__ = ("_kept", "_limit", "_on_oversized", "_skipping", "oversized")

    def __init__(self, limit: int, on_oversized: Callable[[bytes], None] = lambda _: None) -> None:
        self._limit = limit
        self._on_oversized = on_oversized
        self._kept = bytearray()
        self._skipping = False
        self.oversized = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next chunk; return the lines it completes, without their newlines."""
        first, *rest = data.split(b"\n")
        if not rest:
            self._keep(first)
            return []
        lines = [line for line in (self._finish(first), *map(self._checked, rest[:-1])) if line is not None]
        self._keep(rest[-1])
        return lines

    def end(self) -> list[bytes]:
        """The stream is over: return what stands after the last newline, if anything."""
        last = self._finish(b"")
        return [last] if last else []

    def _keep(self, part: bytes) -> None:
        if self._skipping:
            return
        if len(self._kept) + len(part) <= self._limit:
            self._kept += part
            return
        head = bytes(self._kept[:HEAD]) + part[:HEAD]
        self._kept = bytearray()
        self._skipping = True
        self._refuse(head[:HEAD])

    def _refuse(self, head: bytes) -> None:
        self.oversized += 1
        self._on_oversized(head)

    def _finish(self, part: bytes) -> bytes | None:
        if not self._kept and not self._skipping:
            return self._checked(part)
        self._keep(part)
        line = None if self._skipping else bytes(self._kept)
        self._kept = bytearray()
        self._skipping = False
        return line

    def _checked(self, line: bytes) -> bytes | None:
        if len(line) <= self._limit:
            return line
        self._refuse(line[:HEAD])
        return None
