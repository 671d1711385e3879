"""Starting programs: a hub, by the first client that needs it, and a server for one bridge alone.

The process with a hub's lock makes its socket, which clients can connect to from then on, and starts it with both: it
has the lock until it ends, however it ends, so there is never a second one. It is detached: in a session of its own,
with its log as its only output, and with nothing else that the client has given to the bridge.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fastmcp_aggregator.attach.folder import Unusable, lock_of, log_of, require_short, socket_of
from fastmcp_aggregator.attach.identity import HubIdentity
from fastmcp_aggregator.attach.peer import is_of_this_user

with suppress(ImportError):
    import fcntl  # there is none on Windows, where no hub is ever found

LISTENER, LOCK = 3, 4
"""The descriptors that a hub is started with."""
_BACKLOG = 4096
_LONGEST_RECORD = 1024 * 1024
"""Bytes."""
_MOST_DESCRIPTORS = 65536


def connected(hub_id: str) -> socket.socket | None:
    """A connection to a hub, which does not block; None: nobody listens now.

    Raises:
        Unusable: it is another user's, or the socket cannot be used.
    """
    path = socket_of(hub_id)
    require_short(path)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.setblocking(False)
    try:
        peer.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
        peer.close()
        return None
    except OSError as error:
        peer.close()
        raise Unusable(f"the socket {path} cannot be used: {error.strerror}") from None
    if not is_of_this_user(peer):
        peer.close()
        raise Unusable(f"another user listens on {path}")
    return peer


def begin(identity: HubIdentity) -> bool:
    """Start a hub, unless somebody has started it already; whether it was started.

    Raises:
        Unusable: that is not possible.
    """
    try:
        lock = _locked(lock_of(identity.id))
        if lock is None:
            return False
        try:
            os.ftruncate(lock, 0)  # of the hub before: that serves, and this one starts
            with _listening(socket_of(identity.id)) as listener:
                _detach(identity, listener.fileno(), lock)
        finally:
            os.close(lock)
    except OSError as error:
        raise Unusable(f"no hub can be started: {error.strerror}") from None
    return True


def own_server(arguments: Sequence[str]) -> tuple[socket.socket, socket.socket, int]:
    """A `serve` for one bridge alone: its stdout, its stdin, and its process id.

    Raises:
        OSError: it cannot be started.
    """
    (output, stdout), (input_, stdin) = socket.socketpair(), socket.socketpair()
    with stdin, stdout:
        process = os.fork()
        if process == 0:
            _become(["serve", *arguments], {0: stdin.fileno(), 1: stdout.fileno(), 2: 2})
    for end in (output, input_):
        end.setblocking(False)
    return output, input_, process


def record_of(hub_id: str) -> Mapping[str, Any] | None:
    """What is noted in the lock of a hub: `pid`, `name`, `config`, `parts`, `serves`; None: nobody has the lock.

    Nothing is noted by who has taken it just now, or on a full disk.
    """
    try:
        descriptor = os.open(lock_of(hub_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _record_in(os.pread(descriptor, _LONGEST_RECORD, 0)) or {}
    finally:
        os.close(descriptor)
    return None


def _record_in(data: bytes) -> Mapping[str, Any] | None:
    try:
        record = json.loads(data)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    pid = record.get("pid")
    return record if isinstance(pid, int) and pid > 1 else None


def note_serving(lock: int) -> None:
    """Note that the hub, which has this lock, is not starting any longer."""
    record = _record_in(os.pread(lock, _LONGEST_RECORD, 0))
    if record is not None:
        with suppress(OSError):
            os.pwrite(lock, json.dumps({**record, "serves": True}).encode(), 0)


def _note(identity: HubIdentity, lock: int) -> None:
    """Note who has the lock: the process that calls this."""
    about = {"name": identity.name, "config": identity.config, "parts": identity.parts}
    with suppress(OSError):
        os.pwrite(lock, json.dumps({"pid": os.getpid(), **about}).encode(), 0)


def _locked(path: str) -> int | None:
    """The descriptor of the lock; None: somebody else has it. The file may be gone when its owner has ended."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)


def _listening(path: str) -> socket.socket:
    """A new socket in the place of what a hub has left that ended. Only who has the lock may make it."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def _detach(identity: HubIdentity, listener: int, lock: int) -> None:
    log = log_of(identity.id)
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    name = [] if identity.name is None else [f"--hub={identity.name}"]
    debug = ["--debug"] if identity.is_debugged else []
    arguments = ["hub", f"--id={identity.id}", *name, *debug, *identity.arguments]
    descriptors = {0: null, 1: output, 2: output, LISTENER: listener, LOCK: lock}
    try:
        process = os.fork()
        if process == 0:
            _in_child(lambda: _detached(identity, arguments, descriptors))
        _, status = os.waitpid(process, 0)
        if status:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    finally:
        os.close(output)
        os.close(null)


def _detached(identity: HubIdentity, arguments: Sequence[str], descriptors: dict[int, int]) -> None:
    os.setsid()
    if os.fork() == 0:
        _note(identity, descriptors[LOCK])
        _become(arguments, descriptors)
    os._exit(0)


def _become(arguments: Sequence[str], descriptors: dict[int, int]) -> None:
    """In a new process: run the program with these descriptors and no others."""
    _in_child(lambda: _run(arguments, descriptors))


def _run(arguments: Sequence[str], descriptors: dict[int, int]) -> None:
    # Above all targets first, so that none is overwritten before it is copied.
    copies = {target: fcntl.fcntl(source, fcntl.F_DUPFD, 16) for target, source in descriptors.items()}
    for target, copy in copies.items():
        os.dup2(copy, target)
    os.closerange(max(descriptors) + 1, _MOST_DESCRIPTORS)
    # Not from the working folder, which is somebody's repository: -P.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "fastmcp_aggregator", *arguments])


def _in_child(step: Callable[[], None]) -> None:
    """Never return into the code of the parent."""
    try:
        step()
    finally:
        os._exit(127)
