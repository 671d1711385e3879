"""The transport to a client on a local socket: what stdio is to the only client of a process, to one of many."""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from fastmcp_aggregator.early.front import Handover
from fastmcp_aggregator.front.stdio.transport import ClientPipe, OutputPipe, Shortcut, StdioStreams

Say = Callable[[bytes], None]
"""Writes a line that is no message of MCP."""


@dataclass(frozen=True, slots=True)
class SocketClient:
    """A client on a connected socket, of which `rest` has been read already.

    `listed` are digests of the lists that it has got before, by method: it is told of those that are others now.
    """

    peer: socket.socket
    rest: bytes = b""
    working_folder: str | None = None
    listed: Mapping[str, str] = field(default_factory=dict)


@asynccontextmanager
async def socket_streams(
    client: SocketClient, on_end: Callable[[], None], shortcut: Shortcut | None
) -> AsyncIterator[tuple[StdioStreams, Say]]:
    """The client's streams. The socket is closed at the end."""
    output = OutputPipe()
    client_pipe = ClientPipe(output, on_end, shortcut, Handover(rest=client.rest))
    await asyncio.get_running_loop().connect_accepted_socket(lambda: _BothEnds(output, client_pipe), client.peer)

    def say(line: bytes) -> None:
        with suppress(OSError):
            output.write(line)

    async with client_pipe.streams(client.listed) as streams:
        yield streams, say


class _BothEnds(asyncio.Protocol):
    """The two ends of one socket. A client that only writes nothing more still reads, and is answered."""

    def __init__(self, output: OutputPipe, client_pipe: ClientPipe) -> None:
        self._output = output
        self._client_pipe = client_pipe
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._output.connection_made(transport)
        self._client_pipe.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._client_pipe.data_received(data)

    def pause_writing(self) -> None:
        self._output.pause_writing()

    def resume_writing(self) -> None:
        self._output.resume_writing()

    def eof_received(self) -> bool:
        if not self._has_ended:
            self._has_ended = True
            self._client_pipe.eof_received()
            self._client_pipe.connection_lost(None)
            if _is_gone(self._transport.get_extra_info("socket")):
                self._transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._output.connection_lost(exc)
        self.eof_received()


def _is_gone(peer: socket.socket) -> bool:
    """True if the other end of a local socket is closed, and not only for writing, as far as Linux tells."""
    if sys.platform != "linux":
        return False  # elsewhere, either is a POLLHUP
    poll = select.poll()
    poll.register(peer, 0)
    return bool(poll.poll(0))  # POLLHUP is told unasked (POSIX.1-2017, poll)
