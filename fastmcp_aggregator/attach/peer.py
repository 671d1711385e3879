"""The other end of a socket: which user it is, as the kernel says, and whether it has sent something."""

from __future__ import annotations

import os
import socket
import struct
import sys

_LOCAL_PEERCRED = 1
"""Option of <sys/un.h> on macOS and BSD, at level 0."""
_XUCRED_BYTES = 76


def user_of(peer: socket.socket) -> int | None:
    """The user's number; None: it cannot be told."""
    try:
        if hasattr(socket, "SO_PEERCRED"):
            data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            user: int = struct.unpack("3i", data)[1]
        else:
            data = peer.getsockopt(0, _LOCAL_PEERCRED, _XUCRED_BYTES)
            user = struct.unpack_from("=II", data)[1]
    except (OSError, struct.error):
        return None
    return user


def is_of_this_user(peer: socket.socket) -> bool:
    """True if the peer runs as this user. On Windows the pipe's permissions ensure it."""
    return sys.platform == "win32" or user_of(peer) == os.getuid()


def has_sent(peer: socket.socket) -> bool:
    """True if a non-blocking socket has data or its end to read."""
    try:
        peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
