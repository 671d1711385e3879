"""Asking the hubs of this user: how they are, to end, to show their dashboard."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.attach.starting import connected, record_of

ANSWER_TIMEOUT = 5.0
"""Seconds that a hub has for each part of its answer."""
_KILL_WAIT = 5.0
"""Seconds that a hub has to end after each signal."""
_LOOK_INTERVAL = 0.05
_LONGEST = 4 * 1024**2


def ask(hub_id: str, what: str, **about: str) -> Mapping[str, Any] | None:
    """What a hub answers; None: there is none, or it ends.

    Raises:
        Unusable: it does not answer, or with something else.
    """
    peer = connected(hub_id)
    if peer is None:
        return None
    with peer:
        line = _asked(peer, hub_id, what, **about)
    return _read(line, hub_id) if line else None


def end(hub_id: str, patience: float) -> bool:
    """Have a hub end, and wait until it has; whether there was one.

    Raises:
        Unusable: it does not answer, or has not ended within `patience` seconds.
    """
    peer = connected(hub_id)
    if peer is None:
        return False
    with peer:
        _asked(peer, hub_id, greeting.STOP)
        peer.settimeout(patience)
        try:
            while peer.recv(greeting.LONGEST):
                pass
        except TimeoutError:
            raise Unusable(f"the hub {hub_id} has not ended for {patience:g} s") from None
        except OSError:
            return True
    return True


def kill(hub_id: str) -> bool:
    """End the process of a hub that does not end when it is asked: SIGTERM, then SIGKILL; whether it is gone."""
    for numbers in ((signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)):
        record = record_of(hub_id)
        if record is None:
            return True
        try:
            for number in numbers:
                os.kill(record["pid"], number)
        except ProcessLookupError:
            return True
        until = time.monotonic() + _KILL_WAIT
        while time.monotonic() < until:
            if record_of(hub_id) is None:
                return True
            time.sleep(_LOOK_INTERVAL)
    return False


def _asked(peer: socket.socket, hub_id: str, what: str, **about: str) -> bytes:
    peer.settimeout(ANSWER_TIMEOUT)
    data = b""
    try:
        peer.sendall(greeting.line(what, **about))
        while not data.endswith(b"\n") and len(data) < _LONGEST:
            more = peer.recv(greeting.LONGEST)
            if not more:
                break
            data += more
    except TimeoutError:
        raise Unusable(f"the hub {hub_id} does not answer") from None
    except OSError:
        return b""
    return data


def _read(line: bytes, hub_id: str) -> Mapping[str, Any] | None:
    try:
        what, about = greeting.read(line)
    except greeting.Malformed:
        raise Unusable(f"the hub {hub_id} answers with something else") from None
    return None if what in (greeting.STOPPING, greeting.FAILED) else about
