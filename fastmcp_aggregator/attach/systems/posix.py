"""POSIX: the Unix socket of a hub, the lock that it has as long as it lives, and the start of programs.

The process with a hub's lock makes its socket, which clients can connect to from then on, and starts it with both: it
has the lock until it ends, however it ends, so there is never a second one. It is detached: in a session of its own,
with its log as its only output, and with nothing else that the client has given to the bridge.
"""

from __future__ import annotations

import sys

assert sys.platform != "win32"

import errno
import fcntl
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from select import POLLIN, POLLOUT, poll
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a bridge does without
    from asyncio import AbstractEventLoop

__all__ = ["POLLIN", "POLLOUT", "poll"]

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)
"""The signals that end a process which ignores a request to stop, in order."""
_LISTENER, _LOCK = 3, 4
"""The descriptors that a hub is started with."""
_BACKLOG = 4096
_LONGEST_NOTE = 1024 * 1024
_MOST_DESCRIPTORS = 65536


class Listener:
    """The socket on which a hub listens; with the lock, if it is that of this process."""

    def __init__(self, listener: socket.socket, lock: str | None = None, locked: int = _LOCK) -> None:
        self._listener = listener
        self._lock = lock
        self._locked = locked
        """The descriptor of the lock."""
        self._connected: deque[socket.socket] = deque()
        self._path: str = listener.getsockname()
        self.name = os.path.basename(self._path)
        listener.setblocking(False)

    @classmethod
    def inherited(cls, path: str, lock: str) -> Listener:
        """The descriptors that this process was started with. Its children inherit none of them.

        Raises:
            OSError: it was started otherwise.
        """
        listener = socket.socket(fileno=_LISTENER)
        os.set_inheritable(_LOCK, False)
        listener.set_inheritable(False)
        if listener.getsockname() != path:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return cls(listener, lock)

    def connected(self) -> list[socket.socket]:
        """Accept waiting connections; all that are not served yet."""
        with suppress(OSError):  # there is nobody, or no descriptor for more
            while True:
                peer, _ = self._listener.accept()
                peer.setblocking(False)
                self._connected.append(peer)
        return list(self._connected)

    async def accept(self, loop: AbstractEventLoop) -> socket.socket:
        """The next connection. Raises OSError: none can be accepted for now."""
        if self._connected:
            return self._connected.popleft()
        peer, _ = await loop.sock_accept(self._listener)
        peer.setblocking(False)
        return peer

    def close(self, word: bytes) -> None:
        """Tell it all whose connections have not been accepted. Who comes from now on starts another hub, later."""
        self._remove(self._path)
        while peers := self.connected():
            self._connected.clear()
            for peer in peers:
                with peer, suppress(OSError):
                    peer.sendall(word)
        self._listener.close()

    def finish(self) -> None:
        """The hub has ended: take away what others would find of it."""
        self._remove(self._path)
        if self._lock is not None:
            self._remove(self._lock)

    def _remove(self, path: str) -> None:
        """Remove what is its own: once somebody has emptied the folder, another hub may have its place there."""
        with suppress(OSError):
            if self._lock is None or os.path.samestat(os.stat(self._lock), os.fstat(self._locked)):
                os.unlink(path)

    def noted(self) -> bytes:
        return os.pread(self._locked, _LONGEST_NOTE, 0)

    def note(self, note: bytes) -> None:
        """Overwrite the note; the new one must not be shorter."""
        with suppress(OSError):
            os.pwrite(self._locked, note, 0)


def connect(path: str) -> socket.socket | None:
    """A connection to a hub, which does not block; None: no hub listens now.

    Raises:
        OSError: the socket cannot be used.
    """
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.setblocking(False)
    try:
        peer.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
        peer.close()
        return None
    except OSError:
        peer.close()
        raise
    return peer


def begin(path: str, lock: str, log: str, command: Sequence[str], note: Callable[[int], bytes]) -> bool:
    """Start a hub with this command, unless somebody has started it already; whether it was started.

    `note` makes what is noted in the lock of the process id.

    Raises:
        OSError: that is not possible.
    """
    locked = _locked(lock)
    if locked is None:
        return False
    try:
        os.ftruncate(locked, 0)  # of the hub before: that serves, and this one starts
        with _listening(path) as listener:
            _detach(log, command, note, listener.fileno(), locked)
    finally:
        os.close(locked)
    return True


def noted(path: str, lock: str) -> bytes | None:
    """The record of the hub that holds the lock; None: it is free."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, _LONGEST_NOTE, 0)
    finally:
        os.close(descriptor)
    return None


def own_server(command: Sequence[str]) -> tuple[socket.socket, socket.socket, Callable[[], int]]:
    """A program for one bridge alone: its stdout, its stdin, and what waits for its exit code.

    Raises:
        OSError: it cannot be started.
    """
    (output, stdout), (input_, stdin) = socket.socketpair(), socket.socketpair()
    with stdin, stdout:
        process = os.fork()
        if process == 0:
            _become(command, {0: stdin.fileno(), 1: stdout.fileno(), 2: 2})
    for end in (output, input_):
        end.setblocking(False)
    return output, input_, partial(_exit_code_of, process)


def open_log(path: str) -> int:
    """A descriptor that appends to a file of this user alone."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _exit_code_of(process: int) -> int:
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 1


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
    """A new socket in the place of what a hub has left that ended. Only the holder of the lock may make it."""
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


def _detach(log: str, command: Sequence[str], note: Callable[[int], bytes], listener: int, lock: int) -> None:
    output = open_log(log)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    descriptors = {0: null, 1: output, 2: output, _LISTENER: listener, _LOCK: lock}
    try:
        process = os.fork()
        if process == 0:
            _in_child(lambda: _detached(command, note, descriptors))
        _, status = os.waitpid(process, 0)
        if status:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    finally:
        os.close(output)
        os.close(null)


def _detached(command: Sequence[str], note: Callable[[int], bytes], descriptors: dict[int, int]) -> None:
    os.setsid()
    if os.fork() == 0:
        with suppress(OSError):
            os.pwrite(descriptors[_LOCK], note(os.getpid()), 0)
        _become(command, descriptors)
    os._exit(0)


def _become(command: Sequence[str], descriptors: dict[int, int]) -> None:
    """Run the command, in a new process, with these descriptors and no others."""
    _in_child(lambda: _run(command, descriptors))


def _run(command: Sequence[str], descriptors: dict[int, int]) -> None:
    # Above all targets first, so that none is overwritten before it is copied.
    copies = {target: fcntl.fcntl(source, fcntl.F_DUPFD, 16) for target, source in descriptors.items()}
    for target, copy in copies.items():
        os.dup2(copy, target)
    os.closerange(max(descriptors) + 1, _MOST_DESCRIPTORS)
    os.execv(command[0], list(command))


def _in_child(step: Callable[[], None]) -> None:
    """Never return into the code of the parent."""
    try:
        step()
    finally:
        os._exit(127)
