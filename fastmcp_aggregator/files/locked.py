"""File locks: of several processes that change a file, one after the other reads, changes and writes it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.atomic import PRIVATE

_LOCK_TIMEOUT = 30.0
_LOOK_INTERVAL = 0.01


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep the other processes of this program from changing a file. A link is followed; without a folder, no lock.

    Raises:
        AggregatorError: another process has it for too long, or there can be no lock.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - for the few commands that change a file

    target = path.resolve()
    lock = FileLock(target.with_name(f".{target.name}.lock"), mode=PRIVATE)
    try:
        acquired = lock.acquire(_LOCK_TIMEOUT) if target.parent.is_dir() else nullcontext()
    except Timeout:
        raise AggregatorError(f"{path} is being changed by another process; try again") from None
    except OSError as error:
        raise AggregatorError(f"cannot write {path}: {error.strerror}") from None
    with acquired:
        yield


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """The same for whatever is replaced in a folder of another program, in which no lock file is to be left.

    On Windows, and where folders cannot be locked, it does nothing.

    Raises:
        AggregatorError: another process has it for too long.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not _acquired(descriptor):
            raise AggregatorError(f"files in {folder} are being changed by another process; try again")
        yield
    finally:
        os.close(descriptor)


def _acquired(descriptor: int) -> bool:
    import fcntl  # noqa: PLC0415 - POSIX only

    ends = time.monotonic() + _LOCK_TIMEOUT
    while time.monotonic() < ends:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_INTERVAL)
        except OSError:
            return True  # this file system has no such locks
        else:
            return True
    return False
