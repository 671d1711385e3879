"""A hub as bridges and commands find it: connecting to it, starting it, and what is noted of it; or a server alone."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastmcp_aggregator.attach.folder import Unusable, lock_of, log_of, require_short, socket_of
from fastmcp_aggregator.attach.identity import HubIdentity
from fastmcp_aggregator.attach.peer import is_of_this_user
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.early.answers import make_private


def connected(hub_id: str) -> socket.socket | None:
    """A connection to a hub, which does not block; None: no hub listens now.

    Raises:
        Unusable: it is another user's, or the socket cannot be used.
    """
    path = socket_of(hub_id)
    require_short(path)
    try:
        peer = system.connect(path)
    except OSError as error:
        raise Unusable(f"the socket {path} cannot be used: {error.strerror}") from None
    if peer is not None and not is_of_this_user(peer):
        peer.close()
        raise Unusable(f"another user listens on {path}")
    return peer


def begin(identity: HubIdentity) -> bool:
    """Start a hub, unless somebody has started it already; whether it was started.

    Raises:
        Unusable: that is not possible.
    """
    log = log_of(identity.id)
    name = [] if identity.name is None else [f"--hub={identity.name}"]
    debug = ["--debug"] if identity.is_debugged else []
    command = _command("hub", f"--id={identity.id}", *name, *debug, *identity.arguments)
    about = {"name": identity.name, "config": identity.config, "parts": identity.parts}

    def note(process: int) -> bytes:
        return json.dumps({"pid": process, **about}).encode()

    try:
        make_private(os.path.dirname(log))
        return system.begin(socket_of(identity.id), lock_of(identity.id), log, command, note)
    except OSError as error:
        raise Unusable(f"no hub can be started: {error.strerror}") from None


def own_server(arguments: Sequence[str]) -> tuple[socket.socket, socket.socket, Callable[[], int]]:
    """A `serve` for one bridge alone: its stdout, its stdin, and what waits for its exit code.

    Raises:
        OSError: it cannot be started.
    """
    return system.own_server(_command("serve", *arguments))


def record_of(hub_id: str) -> Mapping[str, Any] | None:
    """The record in the lock of a hub: `pid`, `name`, `config`, `parts`, `serves`; None: the lock is free. It is empty
    if a hub has taken the lock just now, or on a full disk.
    """
    note = system.noted(socket_of(hub_id), lock_of(hub_id))
    return None if note is None else _record_in(note) or {}


def note_serving(listener: system.Listener) -> None:
    """Note that the hub, which has this listener, is not starting any longer."""
    record = _record_in(listener.noted())
    if record is not None:
        listener.note(json.dumps({**record, "serves": True}).encode())


def _record_in(data: bytes) -> Mapping[str, Any] | None:
    try:
        record = json.loads(data)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    pid = record.get("pid")
    return record if isinstance(pid, int) and pid > 1 else None


def _command(*arguments: str) -> list[str]:
    # Not from the working folder, which is somebody's repository: -P.
    return [sys.executable, "-P", "-m", "fastmcp_aggregator", *arguments]
