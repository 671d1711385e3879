"""File locks: of several processes that change a file, one after the other reads, changes and writes it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.atomic import PRIVATE

_LOOK_INTERVAL = 0.01


@contextmanager
def locked(path: Path, *, timeout: float = 30.0) -> Iterator[None]:
    """Keep the other processes of this program from changing a file. A link is followed; without a folder, no lock.

    The lock is a file beside it while somebody has it, and is gone afterwards: the folder may be a repository, or that
    of another program.

    Raises:
        AggregatorError: another process has it for more than `timeout` seconds, or there can be no lock.
    """
    target = path.resolve()
    with ExitStack() as stack:
        try:
            if target.parent.is_dir():
                stack.enter_context(_lock_file(target.with_name(f".{target.name}.lock"), timeout))
        except TimeoutError:
            raise AggregatorError(f"{path} is being changed by another process; try again") from None
        except OSError as error:
            raise AggregatorError(f"cannot write {path}: {error.strerror}") from None
        yield


@contextmanager
def _lock_file(lock: Path, timeout: float) -> Iterator[None]:
    """Have the lock of a file that is made for it, and removed.

    Raises:
        OSError: it cannot be made; TimeoutError if another process has it for too long.
    """
    if sys.platform == "win32":
        from filelock import FileLock  # noqa: PLC0415 - Windows only; there it removes its file

        with FileLock(lock, timeout, mode=PRIVATE):
            yield
        return
    descriptor = _taken(lock, timeout)
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()  # while it is locked: who has opened it meanwhile sees that it is gone, and opens another
        os.close(descriptor)


def _taken(lock: Path, timeout: float) -> int:
    ends = time.monotonic() + timeout
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE)
        try:
            _acquire(descriptor, ends)
            if _is_the_file(descriptor, lock):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_the_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _acquire(descriptor: int, ends: float) -> None:
    """Lock a file, if its file system has such locks.

    Raises:
        TimeoutError: another process has the lock for too long.
    """
    import fcntl  # noqa: PLC0415 - POSIX only

    while time.monotonic() < ends:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_INTERVAL)
        except OSError:
            return
        else:
            return
    raise TimeoutError
