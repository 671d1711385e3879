"""The HTTP server: streamable HTTP through a uvicorn server whose life we own.

uvicorn's own signal handling would end the process before the children are closed, so it is off; the server ends when
it is told to, and the caller closes the children afterwards. Its connections are shared between the addresses that they
come from (`concurrency/connections.py`). What a proxy says of the client is believed of those alone that are named.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp

from fastmcp_aggregator.access.loopback import is_one_of, network_of
from fastmcp_aggregator.concurrency.arrivals import Arrival, Arrivals
from fastmcp_aggregator.concurrency.connections import HEAD_BOUND, Connections
from fastmcp_aggregator.concurrency.known_callers import KnownCallers
from fastmcp_aggregator.concurrency.limiter import DRAIN_TIMEOUT, FairShare, Holder
from fastmcp_aggregator.file_descriptors import shortage
from fastmcp_aggregator.front.http.boundary import Drain
from fastmcp_aggregator.front.http.client_connection import NO_ROOM, ClientConnection, Reads, WholeResponses
from fastmcp_aggregator.pipe.bucket import TokenBucket

_BACKLOG = 2048
_CLOSE_BOUND = 2
"""Seconds that connections have to close once the last request is answered."""


@dataclass(frozen=True, slots=True)
class HttpTimings:
    """In seconds."""

    head_bound: float = HEAD_BOUND
    """How long a connection may be without a request."""
    sweep_interval: float = 1.0
    """The time between two looks at what connections are overdue."""
    quiet_bound: float = 0.5
    """How long requests have to finish before others are refused, while nobody else can connect."""
    look_interval: float = 0.005
    """The time between two looks whether somebody has just connected, at the end."""


DEFAULT_TIMINGS = HttpTimings()


async def _sweep(connections: Connections, interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        connections.end_overdue()


_ACCEPTS = sys.platform == "linux"
"""True if we accept the connections, not asyncio."""


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, arrivals: Arrivals, on_listening: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._arrivals = arrivals
        self._on_listening = on_listening
        self._starting = set[asyncio.Task[Any]]()
        """The transports of connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([] if _ACCEPTS else [self._listener])
        self._listener.listen(_BACKLOG)
        if _ACCEPTS:
            self._listener.setblocking(False)
            self._arrivals.start(self._take_up)
        self._on_listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if _ACCEPTS:
            self._arrivals.close()
        await super().shutdown(sockets)

    def close_listeners(self) -> None:
        """Refuse new connections from now on; not only when the server has ended."""
        if _ACCEPTS:
            self._arrivals.close_listener()
        for listening in self.servers:
            listening.close()

    def _take_up(self, arrival: Arrival) -> None:
        kind: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        state = {"server_state": self.server_state, "app_state": self.lifespan.state}
        protocol = partial(kind, config=self.config, arrival=arrival, **state)
        starting = asyncio.create_task(asyncio.get_running_loop().connect_accepted_socket(protocol, arrival.connection))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


_PLENTY = 10_000
"""Default limit of connections."""
_MUCH = 256 * 1024**2
"""Default limit of unread bytes."""


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    on_listening: Callable[[], None] = lambda: None,
    open_ones: FairShare | None = None,
    unread: FairShare | None = None,
    proxies: Collection[str] = (),
    drain_wait: float = 0.0,
    drain_timeout: float = DRAIN_TIMEOUT,
    timings: HttpTimings = DEFAULT_TIMINGS,
) -> None:
    """Serve an ASGI app until `stop` is set; requests in flight have `drain_timeout` seconds to finish then, streams
    that only listen are ended.

    For `drain_wait` seconds after that all else is as before, but for the answer to whether it is ready.
    `open_ones` and `unread` bound connections, and the bytes that their clients do not read; `proxies` are the
    addresses and networks of those that are believed.
    """
    drain = Drain(app)
    shares = open_ones or FairShare(_PLENTY), unread or FairShare(_MUCH)
    connections = Connections(*shares, time.monotonic, head_bound=timings.head_bound)
    address_of = partial(_address_of, proxies=proxies)
    known = KnownCallers(time.monotonic)
    arrivals = Arrivals(listener, connections, address_of, known, NO_ROOM)
    config = uvicorn.Config(
        WholeResponses(drain),
        log_level="warning",
        access_log=False,
        lifespan="on",
        ws="none",
        http=partial(  # type: ignore[arg-type]
            ClientConnection,
            connections=connections,
            reads=Reads(),
            address_of=address_of,
            has_left=arrivals.has_left,
            known=known,
        ),
        # Else it believes what it is told from loopback, or from where a variable says.
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        # Where asyncio accepts connections, it is so many in a turn. When there are no descriptors left it tries as
        # often, and logs each failure: https://github.com/python/cpython/issues/151615
        backlog=1,
        timeout_graceful_shutdown=_CLOSE_BOUND,
    )
    server = _Server(config, listener, arrivals, on_listening)
    AppStatus.should_exit = False
    serving = asyncio.create_task(server.serve([listener]), name="http")
    stopping = asyncio.create_task(stop.wait())
    sweeping = asyncio.create_task(_sweep(connections, timings.sweep_interval), name="connections")
    try:
        with reporting_shortage(), few_warnings():
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                if drain_wait:
                    await drain.leave(drain_wait)
                    await _end_quietly(server, listener, connections, drain, timings)
                await drain.close(drain_timeout)
                await _accept_last(server, listener, connections, timings)
    finally:
        stopping.cancel()
        sweeping.cancel()
        AppStatus.should_exit = True
        server.should_exit = True
        try:
            await serving
        finally:
            AppStatus.should_exit = False  # of the whole process, so also of other servers in it


def _address_of(host: str, proxies: Collection[str]) -> Holder:
    """The address that a connection of a host counts for; None for a proxy."""
    return None if is_one_of(host, proxies) else network_of(host)


_LAST_BOUND = 1.0
"""Seconds that the last connections have to be accepted, and to send their first request."""
_EMPTY_LOOKS = 3
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_DROP_SYN = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the flags of the TCP header
        (0x45, 0, 1, 0x02),  # skip the next unless SYN is set
        (0x06, 0, 0, 0),  # return 0 bytes of the packet
        (0x06, 0, 0, 0xFFFF),
    )
)
"""A classic BPF program: packets that begin a connection are dropped, and all others pass."""


async def _end_quietly(
    server: _Server, listener: socket.socket, connections: Connections, drain: Drain, timings: HttpTimings
) -> None:
    """Let nobody else connect, and serve who has, until all is answered; if that takes too long, let others connect
    again, who are refused then.
    """
    with _refusing(listener):
        try:
            async with asyncio.timeout(timings.quiet_bound):
                await _accept_queue(listener, connections, timings.look_interval)
                await drain.until_idle()
        except TimeoutError:
            return
        await drain.close()
        server.close_listeners()


async def _accept_last(
    server: _Server, listener: socket.socket, connections: Connections, timings: HttpTimings
) -> None:
    """Let nobody else connect, and wait until who has connected is accepted and has sent a request, within a bound."""
    if listener.fileno() >= 0:
        with _refusing(listener):
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_BOUND):
                    await _accept_queue(listener, connections, timings.look_interval)
            server.close_listeners()


async def _accept_queue(listener: socket.socket, connections: Connections, look_interval: float) -> None:
    """Wait until who has connected is accepted and has sent a request. asyncio takes some turns to tell of one that it
    has accepted, so nobody may be there for two looks.
    """
    empty_looks = 0
    while empty_looks < _EMPTY_LOOKS:
        await asyncio.sleep(look_interval)
        is_empty = not connections.unasked and not select.select([listener], [], [], 0)[0]
        empty_looks = empty_looks + 1 if is_empty else 0


@contextmanager
def _refusing(listener: socket.socket) -> Iterator[None]:
    """Keep the queue of a listening socket from growing.

    A socket that is closed resets what stands in its queue, and no load balancer may try a request again whose
    connection was reset: it may have been done. On Linux a filter drops what begins a connection; who connects
    meanwhile tries again, and is refused once the socket is closed, which is tried elsewhere. Handshakes that are half
    done are finished: their clients may be connected already. On other systems the queue is made as short as it can be.
    """
    with suppress(OSError):
        if sys.platform == "linux":
            program = ctypes.create_string_buffer(_DROP_SYN)
            filter_ = struct.pack("HL", len(_DROP_SYN) // 8, ctypes.addressof(program))
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
        else:
            listener.listen(0)
    try:
        yield
    finally:
        with suppress(OSError):
            if sys.platform == "linux":
                listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
            else:
                listener.listen(_BACKLOG)


logger = logging.getLogger(__name__)


@contextmanager
def reporting_shortage() -> Iterator[None]:
    """Log failures to accept a connection once a minute, in one line, instead of asyncio's tracebacks."""
    loop = asyncio.get_running_loop()
    others = loop.get_exception_handler()
    reports = TokenBucket.once_a_minute()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        lacking = shortage(context.get("exception")) if "socket" in context else None
        if lacking is None:
            (others or type(loop).default_exception_handler)(loop, context)
        elif reports.take(loop.time()):
            logger.warning("new connections wait until others are closed: %s", lacking)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(others)


_WARNINGS = 10
"""Lines about requests that are no HTTP, at once and a second: who sends them needs no credentials."""


@contextmanager
def few_warnings() -> Iterator[None]:
    """While a server serves: few of uvicorn's warnings are logged, which are all about what some client sends."""
    lines = TokenBucket(burst=_WARNINGS, rate=_WARNINGS)

    def is_logged(record: logging.LogRecord) -> bool:
        return record.levelno != logging.WARNING or lines.take(time.monotonic())

    uvicorn_logger = logging.getLogger("uvicorn.error")
    uvicorn_logger.addFilter(is_logged)
    try:
        yield
    finally:
        uvicorn_logger.removeFilter(is_logged)
