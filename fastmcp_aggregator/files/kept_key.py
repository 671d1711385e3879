"""A key that is made once and kept in a file of this user's alone."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from fastmcp_aggregator.early.answers import make_once
from fastmcp_aggregator.early.reading import read_bytes

_BYTES = 32
_MOST_BYTES = 1024


def kept_key(path: Path) -> bytes:
    """The 32 random bytes in a file, which is made if there is none; the same for all who ask at once.

    Raises:
        OSError: it cannot be read or made.
        ValueError: it has something else in it.
    """
    with suppress(FileNotFoundError):
        return _read(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_once(str(path), secrets.token_hex(_BYTES).encode())
    return _read(path)


def _read(path: Path) -> bytes:
    key = bytes.fromhex(read_bytes(path, _MOST_BYTES).decode("ascii"))
    if len(key) != _BYTES:
        raise ValueError(f"{path} has no key of {_BYTES} bytes")
    return key
