"""Writing a file as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600
"""For its owner only."""
PUBLIC = 0o644
"""For everybody to read."""


def write_whole(path: Path, text: str, *, mode: int) -> None:
    """Replace the file's content; who reads it meanwhile gets the old or the new. A link is followed, not replaced.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    target = path.resolve()
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise
