"""The HTTP front: streamable HTTP through a uvicorn server whose life we own.

uvicorn's own signal handling would end the process before the children are closed, so it is off; the server ends when
it is told to, and the caller closes the children afterwards. Its connections are shared between the addresses that they
come from (`concurrency/connections.py`); heads and trailers are bounded, which uvicorn leaves to its other parser, and
trailers are dropped, which it takes for headers; the head of a response is written with its body, not apart, and an app
may send both with one message. What a proxy says of the client is believed of those alone that are named.
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
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from itertools import chain
from typing import Any

import httptools
import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from fastmcp_aggregator.access.loopback import is_one_of, network_of
from fastmcp_aggregator.concurrency.arrivals import Arrivals, HasFileno
from fastmcp_aggregator.concurrency.connections import Connections
from fastmcp_aggregator.concurrency.limiter import FairShare, Holder
from fastmcp_aggregator.file_descriptors import shortage
from fastmcp_aggregator.front.http.boundary import Drain
from fastmcp_aggregator.front.http.connection import HAS_BODY, WHOLE_RESPONSE
from fastmcp_aggregator.front.http.endpoints import WHITE_SPACE
from fastmcp_aggregator.front.http.gate import CONNECTION
from fastmcp_aggregator.pipe.bucket import TokenBucket

_BACKLOG = 2048
_CLOSE_BOUND = 2
"""Seconds that connections have to close once the last request is answered."""

_NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n"

HEAD_LIMIT = 64 * 1024
"""Bytes of a request that are neither body nor what came with the head's first bytes, at most."""
_MOST_FIELDS = 128
"""Fields of a head, and of trailers, at most: each is looked at in turn by all that read them."""
_MOST_PIPELINED = 16
"""Requests that wait for the answers before theirs: what comes behind them waits to be parsed, but for one that
comes with the last bytes of the head before it.
"""
_HEAD_END = b"\r\n\r\n"
_PER_TURN = 16 * 1024
"""Bytes that are parsed in a turn of the event loop before the next read has to wait: less than a millisecond."""
_OF_HEAD = 512
"""The cost of a head beside its bytes, in bytes."""
_OF_LINE = 10
"""The cost of a line: a chunk of a body has two."""
_MANY_LINES = 1024
"""In what is parsed in a turn: chunks of few bytes, or others as short."""
_PIECE = 4 * 1024
"""Bytes that are parsed before it is looked how many parts of a body they were."""
_MOST_PARTS = 512
"""Parts of a body that are taken in a turn: less than a millisecond."""
_MOST_HELD = 1024 * 1024
"""Bytes of a connection that wait to be parsed, at most."""
_MOST_STALLED = 64 * 1024
"""Of one whose requests are not answered, which may take long."""
_FRAMING = 10
"""Bytes that one of a body may take on the wire: it may come in a chunk of its own."""
_HTTP, _LENGTH = b"HTTP/1.1 ", b"\r\ncontent-length: "
_LONG = 64 * 1024
"""Bytes of a body that is not copied behind its head."""
_EXTENSIONS: dict[str, dict[object, object]] = {WHOLE_RESPONSE: {}}
_INVALID = "Invalid HTTP request received."
"""uvicorn's words."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Reads:
    """Has only so much parsed in each turn of the event loop, whatever all connections bring at once; those that wait
    take turns by their addresses, and there new connections with those that were answered before, and those with one
    request with those that bring several, or many small chunks.
    """

    def __init__(self) -> None:
        self._spent = 0
        """In this turn; if it is anything, the next one is scheduled."""
        self._waiting: dict[tuple[Holder, bool, bool], deque[ClientConnection]] = {}

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The server's."""
        return asyncio.get_running_loop()

    def take(self, data: bytes) -> bool:
        """True if this may be parsed at once; then it counts."""
        if self._spent >= _PER_TURN:
            return False
        if not self._spent:
            self._loop.call_soon(self._next)
        self._spent += _cost(data)
        return True

    def put(self, connection: ClientConnection) -> None:
        """Have what it holds parsed when it is its turn."""
        if not self._spent:
            self._spent = 1
            self._loop.call_soon(self._next)
        first = connection.held[:_PER_TURN]
        has_many = first.count(_HEAD_END) > 1 or first.count(b"\n") > _MANY_LINES
        kind = connection.address, connection.is_new, has_many
        self._waiting.setdefault(kind, deque()).append(connection)

    def _next(self) -> None:
        self._spent = 0
        if self._waiting:
            self._loop.call_soon(self._next)
        while self._waiting and self._spent < _PER_TURN:
            kind = next(iter(self._waiting))
            queue = self._waiting.pop(kind)
            connection = queue.popleft()
            if queue:
                self._waiting[kind] = queue  # behind the others
            self._spent += _cost(connection.held)
            connection.parse_held()


def _cost(data: bytes) -> int:
    """The cost of parsing it, in bytes; those of bodies cost little."""
    data = data[:_PER_TURN]
    return 1 + len(data) + data.count(_HEAD_END) * _OF_HEAD + data.count(b"\n") * _OF_LINE


class ClientConnection(HttpToolsProtocol):
    """A connection that has a place among all, on uvicorn's faster parser, with the bound that its other one has."""

    transport: _Transport

    address: Holder = None
    holder: Holder = None
    is_lost = False
    is_new = True
    """True until something was answered on it."""
    _turn: asyncio.Future[None] | None = None
    """Of a request that waits to be refused."""
    _overhead = 0
    """Bytes of the present request that are no body, and what the framing of the body may take."""
    _parts = 0
    """Of bodies, among what was parsed last, and pieces of that."""
    _is_stalled = False
    """True if the held bytes wait for answers, not for their turn."""
    held = b""
    """Bytes received and not parsed yet."""

    def __init__(
        self,
        *args: Any,
        connections: Connections,
        reads: Reads,
        address_of: Callable[[str], Holder],
        has_left: Callable[[HasFileno], bool],
        **options: Any,
    ) -> None:
        """`address_of` tells whose share a host takes; `has_left` of a socket whether its client has ended it, and many
        others wait.
        """
        super().__init__(*args, **options)
        self._has_left = has_left
        self._connections = connections
        self._reads = reads
        self._address_of = address_of

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._pipe = transport
        super().connection_made(_Transport(transport))
        self.address = self.holder = self._address_of(self.client[0] if self.client else "")
        if not self._connections.admit(self):
            transport.write(_NO_ROOM)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._connections.leave(self)
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)
        super().connection_lost(exc)
        self._end_circles()

    def _end_circles(self) -> None:
        """Let a connection that is lost refer to itself no longer: it is 10 KiB for a garbage collection to find, which
        may be long after.
        """
        scopes: list[Any] = [self.scope, getattr(self.cycle, "scope", None)]
        for scope in filter(None, scopes):
            if CONNECTION in scope:
                scope[CONNECTION] = _LOST
        vars(self._pipe).pop("_read_ready_cb", None)  # which asyncio leaves there

    def data_received(self, data: bytes) -> None:
        if self.is_new and self._has_left(self._pipe.get_extra_info("socket")):
            self._pipe.abort()
        elif not self.held and self._reads.take(data):
            self._take(data)
        else:
            self._hold(data)

    def _hold(self, data: bytes) -> None:
        is_first = not self.held
        self.held += data
        if is_first and not self._is_stalled:
            self._reads.put(self)
        self.flow.pause_reading()
        if len(self.held) > (_MOST_STALLED if self._is_stalled else _MOST_HELD):
            self.transport.close()

    def parse_held(self) -> None:
        held, self.held = self.held, b""
        if not self.is_lost and not self.transport.is_closing():
            self.flow.resume_reading()  # it is paused again for those that wait
            self._take(held)
            if self._is_idle:  # its last answer may have come before all of this was parsed
                self._connections.wait(self, anew=False)

    def _take(self, data: bytes) -> None:
        """Parse it; of a body in many small chunks, what there is time for now, and of many requests those that may
        wait for the answers before theirs.
        """
        self._parts = at = 0
        while at < len(data) and not self._pipe.is_closing():
            self._is_stalled = len(self.pipeline) >= _MOST_PIPELINED
            if self._is_stalled or self._parts >= _MOST_PARTS:
                self._hold(data[at:])
                return
            self._parts += 1
            end = at + _PIECE
            head_end = data.find(_HEAD_END, at, end)
            if head_end >= 0 and (self.pipeline or data.find(_HEAD_END, head_end + 1, end) >= 0):
                end = head_end + len(_HEAD_END)  # one head at a time: what is behind it may have to wait
            self._take_piece(data[at:end])
            at = end

    def _take_piece(self, data: bytes) -> None:
        self._overhead += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if self.pipeline:  # an answer would be taken for one of theirs
                self.transport.close()
            elif self._overhead <= HEAD_LIMIT:
                self.logger.warning(_INVALID)
                self.send_400_response(_INVALID)
        if self._overhead > HEAD_LIMIT and not self.transport.is_closing():
            last = getattr(self, "cycle", None)
            if last is None or last.response_complete or not last.response_started:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        """Parse as if there were no Upgrade fields, which who does not upgrade ignores (RFC 9110, 7.8)."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        """The head that was read last, for a new parser: this one takes the body behind it for another request.

        Raises:
            HttpParserError: it asks for a tunnel.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            raise httptools.HttpParserError("no tunnels")
        fields = (b"%b: %b" % field for field in self.headers if field[0] != b"upgrade")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        return b"\r\n".join((b"%b %b HTTP/%b" % (method, self.url, version), *fields, b"", b""))

    def on_message_begin(self) -> None:
        if len(self.pipeline) > _MOST_PIPELINED:
            raise httptools.HttpParserError("too many requests at once")
        self._overhead = 0
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= _MOST_FIELDS:
            self._overhead = HEAD_LIMIT + 1
            raise httptools.HttpParserError("too many fields")
        name, value = name.lower(), value.strip(WHITE_SPACE)
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        if not self.url.startswith(b"/") and (authority := _authority_in(self.url)):
            self.headers[:] = [field for field in self.headers if field[0] != b"host"] + [(b"host", authority)]
        super().on_headers_complete()
        self.headers = []  # for trailers, which must not be taken for headers (RFC 9110, 6.5.1)
        self._connections.work(self)

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body) * _FRAMING
        self._parts += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self.scope[HAS_BODY] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.is_new = False
        if self.pipeline or self._pipe.is_closing():
            self._connections.work(self)
            super().on_response_complete()
        else:  # without uvicorn's timer for each response: `Connections` closes who sends no other request
            self.server_state.total_requests += 1
            self.flow.resume_reading()
        if self._is_stalled and len(self.pipeline) < _MOST_PIPELINED:
            self._is_stalled = False
            self._reads.put(self)
        if self.held:
            self.flow.pause_reading()  # uvicorn has resumed it
        if self._is_idle:
            self._connections.wait(self)

    @property
    def _is_idle(self) -> bool:
        """True if all its requests are answered, and nothing waits to be parsed."""
        last: RequestResponseCycle | None = self.cycle
        return (last is None or last.response_complete) and not self.pipeline and not self.held

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connections.pause(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connections.resume(self)

    def give_way(self, turn: asyncio.Future[None]) -> None:
        self._turn = turn
        self._connections.wait(self)
        if self.is_lost:
            turn.set_result(None)

    @property
    def unread(self) -> int:
        return self._pipe.get_write_buffer_size()

    def abort(self) -> None:
        self._pipe.abort()


class WholeResponses:
    """An ASGI layer that lets an app send a response with one message, unless its request has others behind it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope.get(CONNECTION)
        if connection is not None and not connection.is_lost and connection.cycle.scope is scope:
            scope["extensions"] = _EXTENSIONS
            send = partial(_send, connection.cycle, connection.transport)
        await self._app(scope, receive, send)


async def _send(cycle: RequestResponseCycle, transport: _Transport, message: Message) -> None:
    if message["type"] != WHOLE_RESPONSE:
        await cycle.send(message)  # type: ignore[arg-type]
        return
    status, body, headers = message["status"], message["body"], message["headers"]
    is_odd = HEADER_VALUE_RE.search(b"\t".join(chain.from_iterable(headers)))  # uvicorn says so
    can_write = not cycle.response_started and not cycle.disconnected and not cycle.flow.write_paused
    if is_odd or not can_write or cycle.scope["method"] == "HEAD":
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        await cycle.send({"type": "http.response.start", "status": status, "headers": headers})
        await cycle.send({"type": "http.response.body", "body": body})
        return
    cycle.response_started = cycle.response_complete = True
    head = STATUS_LINE[status]
    for field in (*cycle.default_headers, *headers):
        head += b"%b: %b\r\n" % field
    end = b"" if cycle.keep_alive else b"connection: close\r\n"
    transport.write_joined(b"%bcontent-length: %d\r\n%b\r\n" % (head, len(body), end), body)
    cycle.message_event.set()
    if not cycle.keep_alive:
        transport.close()
    cycle.on_response()


class _LostConnection:
    """A stand-in for the connection of a request that is still served."""

    is_lost = True

    def give_way(self, turn: asyncio.Future[None]) -> None:
        turn.set_result(None)


_LOST = _LostConnection()


def _authority_in(target: bytes) -> bytes:
    """Host and port in a request target in absolute form, which count instead of the header (RFC 9112, 3.2.2)."""
    parts = httptools.parse_url(target)
    if not parts.host:
        return b""
    host: bytes = b"[%b]" % parts.host if b":" in parts.host else parts.host
    return b"%b:%d" % (host, parts.port) if parts.port else host


class _Transport(asyncio.Transport):
    """A connection on which the head of a response waits for a body of known length, until the turn is over."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._head = b""
        self._flushing: asyncio.Handle | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._head:
            self.write_joined(self._taken_head(), data)
        elif data[: len(_HTTP)] == _HTTP and _LENGTH in bytes(data):
            self._head = bytes(data)
            self._flushing = asyncio.get_running_loop().call_soon(self.flush)
        else:
            self._transport.write(data)

    def write_joined(self, head: bytes, body: bytes | bytearray | memoryview) -> None:
        """Write the head of a response and what comes of its body, at once unless that is long."""
        if len(body) < _LONG:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    def flush(self) -> None:
        if head := self._taken_head():
            self._transport.write(head)

    def _taken_head(self) -> bytes:
        """The head, which waits no longer. Its handle is not kept: by its context it refers to the request, and that to
        the connection.
        """
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            flushing.cancel()
        head, self._head = self._head, b""
        return head

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()


_SWEEP_INTERVAL = 1.0


async def _sweep(connections: Connections) -> None:
    while True:
        await asyncio.sleep(_SWEEP_INTERVAL)
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

    def _take_up(self, connection: socket.socket) -> None:
        kind: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        protocol = partial(kind, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        starting = asyncio.create_task(asyncio.get_running_loop().connect_accepted_socket(protocol, connection))
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
) -> None:
    """Serve an ASGI app until `stop` is set; requests in flight may finish then, streams that only listen are ended.

    For `drain_wait` seconds after that all else is as before, but for the answer to whether it is ready.
    `open_ones` and `unread` bound connections, and the bytes that their clients do not read; `proxies` are the
    addresses and networks of those that are believed.
    """
    drain = Drain(app)
    connections = Connections(open_ones or FairShare(_PLENTY), unread or FairShare(_MUCH), time.monotonic)
    address_of = partial(_address_of, proxies=proxies)
    arrivals = Arrivals(listener, connections, address_of, _NO_ROOM)
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
    sweeping = asyncio.create_task(_sweep(connections), name="connections")
    try:
        with reporting_shortage(), few_warnings():
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                if drain_wait:
                    await drain.leave(drain_wait)
                    await _end_quietly(server, listener, connections, drain)
                await drain.close()
                await _accept_last(server, listener, connections)
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
_LOOK_INTERVAL = 0.005
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

_QUIET_BOUND = 0.5
"""Seconds that requests have to finish before others are refused, while nobody else can connect."""


async def _end_quietly(server: _Server, listener: socket.socket, connections: Connections, drain: Drain) -> None:
    """Let nobody else connect, and serve who has, until all is answered; if that takes too long, let others connect
    again, who are refused then.
    """
    with _refusing(listener):
        try:
            async with asyncio.timeout(_QUIET_BOUND):
                await _accept_queue(listener, connections)
                await drain.until_idle()
        except TimeoutError:
            return
        await drain.close()
        server.close_listeners()


async def _accept_last(server: _Server, listener: socket.socket, connections: Connections) -> None:
    """Let nobody else connect, and wait until who has connected is accepted and has sent a request, within a bound."""
    if listener.fileno() >= 0:
        with _refusing(listener):
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_BOUND):
                    await _accept_queue(listener, connections)
            server.close_listeners()


async def _accept_queue(listener: socket.socket, connections: Connections) -> None:
    """Wait until who has connected is accepted and has sent a request. asyncio takes some turns to tell of one that it
    has accepted, so nobody may be there for two looks.
    """
    empty_looks = 0
    while empty_looks < _EMPTY_LOOKS:
        await asyncio.sleep(_LOOK_INTERVAL)
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
