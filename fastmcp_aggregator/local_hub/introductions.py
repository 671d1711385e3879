"""The handshakes of clients that connect to a hub which starts, answered until its imports are done."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.peer import is_of_this_user
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.early.known_client import Introduce, KnownClient
from fastmcp_aggregator.version import VERSION

_AT_ONCE = 8 * 1024
"""Bytes that a new connection takes at once, on macOS too."""
_LOOK_INTERVAL = 0.02
_SWITCH_INTERVAL = 0.0005
"""Seconds after which imports let the thread have a turn."""
IntroduceTo = Callable[[Mapping[str, Any]], Introduce | None]
"""Answers the handshake of a client with this greeting; None: it waits for the hub."""


@contextmanager
def introducing(listener: system.Listener, introduce_to: IntroduceTo) -> Iterator[None]:
    """Answer those who have connected, and in a thread those who connect meanwhile. What they have sent is only looked
    at: they are served like all others later.
    """
    done: set[socket.socket] = set()
    ending = threading.Event()

    def look() -> None:
        while not ending.wait(_LOOK_INTERVAL):
            _introduce(listener, introduce_to, done)

    _introduce(listener, introduce_to, done)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    thread = threading.Thread(target=look, name="introductions", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        sys.setswitchinterval(before)


def _introduce(listener: system.Listener, introduce_to: IntroduceTo, done: set[socket.socket]) -> None:
    """Answer those who are not `done` yet, and have sent what can be understood."""
    for peer in listener.connected():
        if peer in done:
            continue
        with suppress(OSError, ValueError):  # it has sent nothing yet, or nothing that is understood
            answer = _answer_to(peer, introduce_to) if is_of_this_user(peer) else None
            done.add(peer)
            told = b"" if answer is None else greeting.line(greeting.INTRODUCED, answer=answer.decode().rstrip())
            if len(told) <= _AT_ONCE:
                peer.sendall(told)


def _answer_to(peer: socket.socket, introduce_to: IntroduceTo) -> bytes | None:
    what, about = greeting.read(peer.recv(greeting.LONGEST, socket.MSG_PEEK).partition(b"\n")[0])
    handshake = about.get("handshake")
    if what != greeting.CLIENT or about.get("version") != VERSION:
        return None
    if not isinstance(handshake, str) or not isinstance(about.get("group"), str | None):
        return None
    return KnownClient({}, introduce_to(about)).answer(handshake.encode())
