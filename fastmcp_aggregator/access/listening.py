"""The socket that HTTP is served on."""

from __future__ import annotations

import errno
import select
import socket
import struct
import sys
from typing import Any, Protocol

from fastmcp_aggregator.errors import AggregatorError


def listening_socket(host: str, port: int) -> Listener:
    """A socket bound to the address; port 0 takes a free one. uvicorn would end the program where this raises.

    Raises:
        AggregatorError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _listen(family, (str(address[0]), port))
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]
        advice = "; give another port (--port), or end what listens there" if error.errno == errno.EADDRINUSE else ""
        raise AggregatorError(f"cannot listen on {host}, port {port}: {reason}{advice}") from None


_MANY_WAIT = 16
"""Connections in the system's queue: more come than are accepted, of which one is in a turn of the event loop."""
_MOST_AT_ONCE = 16
"""Connections that are closed before the event loop goes on."""
_QUEUE_LENGTH = struct.Struct("24xI")
"""Where a listening socket's `tcp_info` has it (`tcpi_unacked`)."""


class HasFileno(Protocol):
    """A socket, or what stands for one."""

    def fileno(self) -> int: ...


class Listener(socket.socket):
    """A listening socket that closes, while many wait in its queue, those connections whose clients have left: else who
    only connects and leaves would have all others wait behind what takes ten times as long. On Linux.
    """

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(_MOST_AT_ONCE):
            connection, address = super().accept()
            if not self.has_left(connection):
                return connection, address
            connection.close()
        raise BlockingIOError

    def has_left(self, connection: HasFileno) -> bool:
        """Whether a client has ended its connection, and many others wait."""
        return sys.platform == "linux" and _is_ended(connection) and self._queue_length() > _MANY_WAIT

    def _queue_length(self) -> int:
        try:
            info = self.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUE_LENGTH.size)
            length: int = _QUEUE_LENGTH.unpack(info)[0]
        except (OSError, struct.error):  # of a kernel that is not quite Linux
            return 0
        return length


def _is_ended(connection: HasFileno) -> bool:
    """Whether the client sends no more, or is gone."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def _listen(family: int, address: tuple[str, int]) -> Listener:
    # With the protocol named, which `socket.create_server` does not: only then does asyncio turn Nagle's algorithm off,
    # which holds back the second part of an answer for 40 ms.
    listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket, host: str) -> str:
    """The origin that clients on this machine connect to."""
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
