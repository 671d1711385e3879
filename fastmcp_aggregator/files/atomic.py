"""Atomic file writes: a file is replaced as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from fastmcp_aggregator.errors import AggregatorError

PRIVATE = 0o600
"""For its owner only."""
PUBLIC = 0o644
"""For everybody to read."""


def write_whole(path: Path, text: str, *, mode: int) -> None:
    """Replace the file's content; who reads it meanwhile gets the old or the new. A link is followed, not replaced.

    Raises:
        AggregatorError: it cannot be written; the file is as it was.
    """
    try:
        with staged(path, text, mode=mode) as put_in_place:
            put_in_place()
    except OSError as error:
        raise AggregatorError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def staged(path: Path, text: str, *, mode: int) -> Iterator[Callable[[], None]]:
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
        temporary.chmod(mode)
        yield partial(os.replace, temporary, target)
    finally:
        with suppress(OSError):  # it is in place
            temporary.unlink()
