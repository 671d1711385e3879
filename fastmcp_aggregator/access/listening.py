"""The socket that HTTP is served on."""

from __future__ import annotations

import errno
import socket
import sys

from fastmcp_aggregator.errors import AggregatorError


def listening_socket(host: str, port: int) -> socket.socket:
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


def _listen(family: int, address: tuple[str, int]) -> socket.socket:
    # With the protocol named, which `socket.create_server` does not: only then does asyncio turn Nagle's algorithm off,
    # which holds back the second part of an answer for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
