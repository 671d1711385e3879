"""The reading of files that people name: regular ones, and for a while what comes through a pipe; never without end."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import time

_CHUNK = 1024**2


def read_bytes(path: str | os.PathLike[str], most: int, *, patience: float = 0.0) -> bytes:
    """At most so many bytes of a file. `patience`: seconds in which the end of what is no regular file has to come.

    Raises:
        OSError: it cannot be read, or it is no regular file and nobody has patience for it.
        ValueError: no file can have this path.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # which says that it is one
            return _read(descriptor, most)
        if not patience:
            raise OSError(errno.EINVAL, "it is no regular file")
        return _read(descriptor, most) if sys.platform == "win32" else _received(descriptor, most, patience)
    finally:
        os.close(descriptor)


def _read(descriptor: int, most: int) -> bytes:
    data = bytearray()
    while len(data) < most and (part := os.read(descriptor, min(most - len(data), _CHUNK))):
        data += part
    return bytes(data)


def _received(descriptor: int, most: int, patience: float) -> bytes:
    data, ends = bytearray(), time.monotonic() + patience
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    while len(data) < most:
        left = ends - time.monotonic()
        if left <= 0 or not ready.poll(left * 1000):
            raise TimeoutError(errno.ETIMEDOUT, f"it is a pipe or a device whose end has not come for {patience:g} s")
        try:
            part = os.read(descriptor, min(most - len(data), _CHUNK))
        except BlockingIOError:
            continue
        if not part:
            break
        data += part
    return bytes(data)
