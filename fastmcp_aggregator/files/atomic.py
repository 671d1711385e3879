"""Atomic file writes: a file is replaced as a whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from fastmcp_aggregator.errors import AggregatorError

PRIVATE = 0o600
PUBLIC = 0o644


def require_no_link_to_nothing(path: Path) -> None:
    """Refuse to write through such a link: it may have come with somebody's repository, unseen.

    Raises:
        AggregatorError: the path is a link to a file that is not there.
    """
    if path.is_symlink() and not path.exists():
        target = path.resolve()
        raise AggregatorError(f"{path} is a link to {target}, which is not there: name that, or remove the link")


def write_whole(path: Path, text: str, *, mode: int, keeps_readers: bool = False) -> None:
    """Replace the file's content; who reads it meanwhile gets the old or the new. A link is followed, not replaced.

    With `keeps_readers` a file that is there keeps its owner and who may read it; nobody else may write to it then.

    Raises:
        AggregatorError: it cannot be written; the file is as it was.
    """
    try:
        with staged(path, text, mode=mode, keeps_readers=keeps_readers) as put_in_place:
            put_in_place()
    except OSError as error:
        raise AggregatorError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def staged(path: Path, text: str, *, mode: int, keeps_readers: bool = False) -> Iterator[Callable[[], None]]:
    """The new content, already on the disk; calling what is yielded puts it in place, which takes one rename.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
            if keeps_readers and sys.platform != "win32" and target.exists():
                mode = _mode_like(target, descriptor)
        temporary.chmod(mode)
        yield partial(os.replace, temporary, target)
    finally:
        with suppress(OSError):  # it is in place
            temporary.unlink()


def _mode_like(target: Path, descriptor: int) -> int:
    """Give a file the owner of another one; the mode for it."""
    before = target.stat()
    mode = stat.S_IMODE(before.st_mode) & PUBLIC
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except OSError:
        mode &= ~stat.S_IRWXG  # it would be for another group
    return mode
