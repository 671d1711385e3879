"""The handshakes of clients that wait for a hub which starts, answered before FastMCP is imported and servers start."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.peer import is_of_this_user
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.early.known_client import Introduce, KnownClient
from fastmcp_aggregator.version import VERSION

_AT_ONCE = 8 * 1024
"""Bytes that a new connection takes at once, on macOS too."""
IntroduceTo = Callable[[Mapping[str, Any]], Introduce | None]
"""What answers the handshake of a client with this greeting; None: it waits for the hub."""


def introduce(listener: system.Listener, introduce_to: IntroduceTo) -> None:
    """Answer those who have connected. What they have sent is only looked at: they are served like all others later."""
    for peer in listener.connected():
        try:
            answer = _answer_to(peer, introduce_to) if is_of_this_user(peer) else None
            told = b"" if answer is None else greeting.line(greeting.INTRODUCED, answer=answer.decode().rstrip())
            if len(told) <= _AT_ONCE:
                peer.sendall(told)
        except (OSError, ValueError):  # it has sent nothing yet, or nothing that is understood
            continue


def _answer_to(peer: socket.socket, introduce_to: IntroduceTo) -> bytes | None:
    what, about = greeting.read(peer.recv(greeting.LONGEST, socket.MSG_PEEK).partition(b"\n")[0])
    handshake = about.get("handshake")
    if what != greeting.CLIENT or about.get("version") != VERSION:
        return None
    if not isinstance(handshake, str) or not isinstance(about.get("group"), str | None):
        return None
    return KnownClient({}, introduce_to(about)).answer(handshake.encode())
