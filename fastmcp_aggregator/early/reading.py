"""The reading of files that people name: regular ones, and for a while what comes through a pipe; never without end."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import time

_CHUNK = 1024**2


def read_bytes(path: str | os.PathLike[str], most: int, *, timeout: float = 0.0) -> bytes:
    """The bytes of a file, at most so many. `timeout`: seconds in which the end of a pipe or device has to come.

    Raises:
        OSError: it cannot be read, or it is not a regular file, and there is no timeout.
        ValueError: no file can have this path.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # which says that it is one
            return _read(descriptor, most)
        if not timeout:
            raise OSError(errno.EINVAL, "it is not a regular file")
        return _read(descriptor, most) if sys.platform == "win32" else _received(descriptor, most, timeout)
    finally:
        os.close(descriptor)


def read_own(path: str | os.PathLike[str], most: int) -> tuple[bytes, float]:
    """The content of a plain file of this user alone (no link), and when it was written, in seconds since 1970.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else, or larger.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a plain file")
        if not is_own(found):
            raise ValueError("it belongs to another user, or others may write it")
        if found.st_size > most:
            raise ValueError(f"it is larger than {most // 1024**2} MiB")
        return file.read(most), found.st_mtime


def is_own(found: os.stat_result) -> bool:
    """True if a file or folder belongs to this user, and nobody else may write there."""
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)


def _read(descriptor: int, most: int) -> bytes:
    data = bytearray()
    while len(data) < most and (part := os.read(descriptor, min(most - len(data), _CHUNK))):
        data += part
    return bytes(data)


def _received(descriptor: int, most: int, timeout: float) -> bytes:
    data, ends = bytearray(), time.monotonic() + timeout
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    while len(data) < most:
        left = ends - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            raise TimeoutError(errno.ETIMEDOUT, f"it is a pipe or a device whose end has not come for {timeout:g} s")
        try:
            part = os.read(descriptor, min(most - len(data), _CHUNK))
        except BlockingIOError:
            continue
        if not part:
            break
        data += part
    return bytes(data)
