"""Sockets in the place of what cannot be waited for together with others, and waiting for sockets, as on Windows.

Theory. A thread for each direction passes on what comes, and ends with what it reads from. So half of a connection is
closed as half of a socket is. A named pipe, which has no such halves, has messages: one without bytes is the client's
last. A hub has no last message, it closes the pipe.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Protocol

POLLIN, POLLOUT = 1, 4
CHUNK = 64 * 1024
"""Bytes that are passed on at once: of a pipe, the longest message."""
_AT_ONCE = struct.pack("hh", 1, 0)
"""The value of SO_LINGER that tells the other end, on close, that the connection is lost."""
_running: set[Thread] = set()


class MessagePipe(Protocol):
    """One end of a pipe; its methods raise OSError once the other end is closed, or it is cancelled."""

    def read(self) -> bytes: ...

    def write(self, message: bytes) -> None: ...

    def cancel(self) -> None:
        """Have what reads it end, now or when it begins."""

    def close(self) -> None: ...


class Poll:
    """`select.poll` for sockets, as far as it is needed."""

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}

    def register(self, descriptor: int, mask: int) -> None:
        self._masks[descriptor] = mask

    def unregister(self, descriptor: int) -> None:
        del self._masks[descriptor]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """The ready descriptors, after so many milliseconds at most."""
        seconds = None if timeout is None else timeout / 1000
        if not self._masks:  # which `select` refuses
            time.sleep(seconds or 0)
            return []
        to_read, to_write = ([each for each in self._masks if self._masks[each] & bit] for bit in (POLLIN, POLLOUT))
        readable, writable, _ = select.select(to_read, to_write, [], seconds)
        found = dict.fromkeys(readable, POLLIN)
        for each in writable:
            found[each] = found.get(each, 0) | POLLOUT
        return list(found.items())


def reading(descriptor: int) -> socket.socket:
    """A socket that yields what is read from a descriptor; the descriptor is closed at end of file."""
    ours, theirs = socket.socketpair()

    def pass_on() -> None:
        with theirs, suppress(OSError):
            while data := os.read(descriptor, CHUNK):
                theirs.sendall(data)
        os.close(descriptor)

    _start(pass_on)
    return ours


def writing(descriptor: int) -> tuple[socket.socket, Thread]:
    """A socket of which all is written to a descriptor, which is closed at its end; and the thread that does it."""
    ours, theirs = socket.socketpair()

    def pass_on() -> None:
        with theirs, suppress(OSError):
            while data := theirs.recv(CHUNK):
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
        os.close(descriptor)

    return ours, _start(pass_on)


def of_client(pipe: MessagePipe) -> socket.socket:
    """A socket for the client's end of a pipe."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with suppress(OSError):
            while data := theirs.recv(CHUNK):
                pipe.write(data)
            pipe.write(b"")

    def receive() -> None:
        sending = _start(send)
        with suppress(OSError):
            while True:
                theirs.sendall(pipe.read())
        with suppress(OSError):
            theirs.shutdown(socket.SHUT_WR)
        sending.join()
        theirs.close()
        pipe.close()

    _start(receive)
    return ours


def of_hub(pipe: MessagePipe) -> socket.socket:
    """A socket for the hub's end of a pipe. It is lost when the client is gone, and not only has said its last."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with suppress(OSError):
            while data := theirs.recv(CHUNK):
                pipe.write(data)
        pipe.cancel()

    def receive() -> None:
        sending = _start(send)
        with suppress(OSError):
            while True:
                if message := pipe.read():
                    theirs.sendall(message)
                else:
                    theirs.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            theirs.shutdown(socket.SHUT_RD)  # which wakes what sends
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        theirs.close()
        sending.join()
        pipe.close()

    _start(receive)
    return ours


def finish(timeout: float) -> None:
    """Wait until all that was sent is passed on, for so many seconds at most. No socket is used any longer."""
    until = time.monotonic() + timeout
    for thread in list(_running):
        thread.join(max(0.0, until - time.monotonic()))


def _start(step: Callable[[], None]) -> Thread:
    def run() -> None:
        try:
            step()
        finally:
            _running.discard(thread)

    thread = Thread(target=run, daemon=True)
    _running.add(thread)
    thread.start()
    return thread
