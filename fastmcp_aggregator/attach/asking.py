"""The control client of this user's hubs: asks for status or the dashboard, stops and kills."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.attach.starting import connected, record_of
from fastmcp_aggregator.attach.systems import system

_SIGNAL_TIMEOUT = 5.0
_LOOK_INTERVAL = 0.05
_SHORTEST_WAIT = 0.001
"""Seconds; none would mean not to wait at all."""
_LONGEST = 4 * 1024**2


class Timeouts(NamedTuple):
    """Timeouts of hubs, in seconds."""

    status: float = 2.0
    """To tell how they are; all are asked at once."""
    answer: float = 5.0
    end: float = 60.0
    """To answer what is open, and end their servers."""


DEFAULT_TIMEOUTS = Timeouts()


def ask(hub_id: str, what: str, *, timeout: float = DEFAULT_TIMEOUTS.answer, **about: str) -> Mapping[str, Any] | None:
    """The answer of a hub within `timeout` seconds; None: no hub, or it is stopping.

    Raises:
        Unusable: it does not answer, or with something else.
    """
    peer = connected(hub_id)
    if peer is None:
        return None
    with peer:
        line = _asked(peer, hub_id, what, timeout, **about)
    return _read(line, hub_id) if line else None


def end(hub_id: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> bool:
    """Have a hub end, and wait until it has; whether there was one. Its clients may have started the next one by then.

    Raises:
        Unusable: it does not answer, or has not ended in time.
    """
    record, timeout = record_of(hub_id), timeouts.end
    if record is None:
        return False
    until, is_told = time.monotonic() + timeout, False
    while _is_there(hub_id, record.get("pid")):
        peer = None if is_told else connected(hub_id)
        if peer is not None:  # or it is ending already or, on Windows, just starting
            with peer:
                _asked(peer, hub_id, greeting.STOP, timeouts.answer if record.get("serves") else timeout)
            until, is_told = time.monotonic() + timeout, True
        if time.monotonic() > until:
            raise Unusable(f"the hub {hub_id} did not stop within {timeout:g} s")
        time.sleep(_LOOK_INTERVAL)
    return True


def kill(hub_id: str, pid: int) -> bool:
    """End the process of a hub that does not end when it is asked: SIGTERM, then SIGKILL; whether it is gone."""
    for numbers in system.ENDING_SIGNALS:
        if not _is_there(hub_id, pid):
            return True
        try:
            for number in numbers:
                os.kill(pid, number)
        except ProcessLookupError:
            return True
        if _is_gone(hub_id, pid, _SIGNAL_TIMEOUT):
            return True
    return False


def _is_gone(hub_id: str, pid: int, timeout: float) -> bool:
    """Wait for the end of its process, which has its lock; whether it has come."""
    until = time.monotonic() + timeout
    while _is_there(hub_id, pid):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_INTERVAL)
    return True


def _is_there(hub_id: str, pid: int | None) -> bool:
    """True if this hub's process holds the lock; None: the holder could not be noted."""
    record = record_of(hub_id)
    return record is not None and (pid is None or record.get("pid", pid) == pid)


def _asked(peer: socket.socket, hub_id: str, what: str, timeout: float, **about: str) -> bytes:
    until = time.monotonic() + timeout
    data = b""
    try:
        peer.settimeout(timeout)
        peer.sendall(greeting.line(what, **about))
        while not data.endswith(b"\n") and len(data) < _LONGEST:
            peer.settimeout(max(until - time.monotonic(), _SHORTEST_WAIT))
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
    except greeting.MalformedGreeting:
        raise Unusable(
            f"the hub {hub_id} answers in a way that is not understood here; is it of another version?"
        ) from None
    return None if what in (greeting.STOPPING, greeting.FAILED) else about
