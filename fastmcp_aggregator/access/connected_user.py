"""The user at the other end of a connection over loopback, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CONNECTIONS = Path("/proc/net/tcp")
_ESTABLISHED = "01"
_ROOT = 0
"""Root may do what it likes, and connects for others, such as the browser of the Windows that Linux runs in."""


def is_of_this_user(scope: Mapping[str, Any]) -> bool:
    """True if the client of an ASGI request over 127.0.0.1 is a process of ours, or of root; true of any client where
    nobody can read other users' command lines, or where the user is unknown: on other systems than Linux.
    """
    if sys.platform != "linux":
        return True
    user = _user_of(tuple(scope.get("client") or ()), tuple(scope.get("server") or ()))
    return user in (os.getuid(), _ROOT)


def _user_of(client: tuple[str | int, ...], server: tuple[str | int, ...]) -> int | None:
    """The user of a connection's socket at the client's end; None: there is no such connection."""
    try:
        ends = [_as_listed(*client), _as_listed(*server)]
        rows = map(str.split, _CONNECTIONS.read_text().splitlines())
        return next((int(row[7]) for row in rows if row[1:4] == [*ends, _ESTABLISHED]), None)
    except (OSError, TypeError, ValueError, IndexError):
        return None


def _as_listed(host: str | int, port: str | int) -> str:
    (address,) = struct.unpack("=I", socket.inet_aton(str(host)))
    return f"{address:08X}:{int(port):04X}"
