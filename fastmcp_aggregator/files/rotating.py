"""A rotating file of lines, readable by its owner only: a full one is renamed with a number, and a new one begins."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
"""Never through a symbolic link that somebody has put there."""


class RotatingFile:
    """Appends to `path`; older files are `path.1`, which is the newest of them, to `path.KEEP`.

    A file may grow beyond `max_bytes` by what is written at once. It is opened when it is first needed, and again when
    somebody has taken it away.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._descriptor = -1
        self._is_torn = False
        """True if the file ends in the middle of a line, whose rest is to be written next."""

    def __str__(self) -> str:
        return str(self._path)

    def open(self) -> None:
        """Open the file, which is made if need be, as are its directories. Raises OSError: that is not possible."""
        self.close()
        if not self._path.parent.exists():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            if not self._ends_with_line():  # the program or the machine was stopped while it was written
                os.write(self._descriptor, b"\n")
        except OSError:
            self.close()
            raise

    def write(self, lines: bytes) -> int:
        """Append whole lines, or the rest of lines of which only a part was written; how many bytes were written.

        Raises:
            OSError: none were.
        """
        if not self._is_there():
            self.open()
        if not self._is_torn and self._size() and self._size() + len(lines) > self._max_bytes:
            self._begin_another()
        written = os.write(self._descriptor, lines)
        self._is_torn = not lines[:written].endswith(b"\n")
        return written

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._is_torn = False
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def _begin_another(self) -> None:
        self.close()
        names = [str(self._path), *(f"{self._path}.{number}" for number in range(1, self._keep + 1))]
        for number in range(self._keep, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(names[number - 1], names[number])
        self.open()

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(self._descriptor))
        except OSError:
            return False

    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def _ends_with_line(self) -> bool:
        size = self._size()
        if size == 0:
            return True
        os.lseek(self._descriptor, size - 1, os.SEEK_SET)
        return os.read(self._descriptor, 1) == b"\n"
