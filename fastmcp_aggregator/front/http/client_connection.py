"""A client's connection over HTTP: uvicorn's protocol, which takes its turns and counts among all connections.

Heads and trailers are bounded, which uvicorn leaves to its other parser, and trailers are dropped, which it takes for
headers; the head of a response is written with its body, not apart, and an app may send both with one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from itertools import chain
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from fastmcp_aggregator.concurrency.arrivals import Arrival, HasFileno, Line
from fastmcp_aggregator.concurrency.connections import Connections
from fastmcp_aggregator.concurrency.known_callers import HEAD_END, KnownCallers
from fastmcp_aggregator.concurrency.limiter import Holder
from fastmcp_aggregator.front.http.connection import HAS_BODY, WHOLE_RESPONSE
from fastmcp_aggregator.front.http.endpoints import WHITE_SPACE
from fastmcp_aggregator.front.http.gate import CONNECTION

NO_ROOM = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 5\r\ncontent-length: 0\r\n\r\n"

HEAD_LIMIT = 64 * 1024
"""Bytes of a request that are neither body nor what came with the head's first bytes, at most."""
_MOST_FIELDS = 128
"""Fields of a head, and of trailers, at most: each is looked at in turn by all that read them."""
_MOST_PIPELINED = 16
"""Requests that wait for the answers before theirs: what comes behind them waits to be parsed, but for one that
comes with the last bytes of the head before it.
"""
_PER_TURN = 16 * 1024
"""Bytes that are parsed in a turn of the event loop before the next read has to wait: less than a millisecond."""
_OF_HEAD = 512
"""The cost of a head beside its bytes, in bytes."""
_OF_LINE = 10
"""The cost of a line: a chunk of a body has two."""
_MANY_LINES = 1024
"""Lines among the bytes that are parsed in a turn: chunks of few bytes, or others as short."""
_PIECE = 4 * 1024
"""Bytes that are parsed before it is looked how many parts of a body they were."""
_MOST_PARTS = 512
"""Parts of a body that are taken in a turn: less than a millisecond."""
_MOST_HELD = 1024 * 1024
"""Bytes of a connection that wait to be parsed, at most."""
_MOST_STALLED = 64 * 1024
"""Bytes held for a connection whose requests are not answered, which may take long."""
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
    take turns by their lines, and there those with one request with those that bring several, or many small chunks.
    """

    def __init__(self) -> None:
        self._spent = 0
        """Bytes parsed in this turn; if it is not 0, the next turn is scheduled."""
        self._waiting: dict[tuple[Line, bool], deque[ClientConnection]] = {}

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
        has_many = first.count(HEAD_END) > 1 or first.count(b"\n") > _MANY_LINES
        kind = connection.line, has_many
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
    return 1 + len(data) + data.count(HEAD_END) * _OF_HEAD + data.count(b"\n") * _OF_LINE


class ClientConnection(HttpToolsProtocol):
    """A counted connection, on uvicorn's faster parser, with the bound that its other one has."""

    transport: _Transport

    address: Holder = None
    holder: Holder = None
    is_lost = False
    line: Line
    is_new = True
    """True until something was answered on it."""
    _turn: asyncio.Future[None] | None = None
    """The turn of a request that waits to be refused."""
    _overhead = 0
    """Bytes of the present request that are no body, and what the framing of the body may take."""
    _parts = 0
    """Parts of bodies among the bytes parsed last, and pieces of those."""
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
        known: KnownCallers,
        arrival: Arrival | None = None,
        **options: Any,
    ) -> None:
        """`address_of` tells whose share a host takes; `has_left` of a socket whether its client has ended it, and many
        others wait.
        """
        super().__init__(*args, **options)
        self._has_left = has_left
        self._known = known
        self._arrival = arrival
        self._connections = connections
        self._reads = reads
        self._address_of = address_of

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._pipe = transport
        super().connection_made(_Transport(transport))
        self.address = self.holder = self._address_of(self.client[0] if self.client else "")
        self.line = (self.address, True) if self._arrival is None else self._arrival.line
        if not self._connections.admit(self):
            transport.write(NO_ROOM)
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
            head_end = data.find(HEAD_END, at, end)
            if head_end == at:  # empty lines: no head ends there, or one that is longer than a piece
                head_end = data.find(HEAD_END, min(end, len(data)) - len(data[at:end].lstrip(b"\r\n")), end)
            if head_end >= 0 and (self.pipeline or data.find(HEAD_END, head_end + 1, end) >= 0):
                end = head_end + len(HEAD_END)  # one head at a time: what is behind it may have to wait
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
        if self.is_new:
            self._first_answered()
        if self.holder == self.address:  # it was refused, or has no credential: not in a caller's line any longer
            self.line = self.address, False
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

    def _first_answered(self) -> None:
        self.is_new = False
        self.line = self.line[0], False
        credential = self._arrival and self._arrival.credential
        if credential and self.holder == self.address:
            self._known.refused(credential)
        elif credential:
            self._known.let_in(credential, self.holder)

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

    def refuse(self) -> None:
        if self.is_new or not self._is_idle:
            self._pipe.write(NO_ROOM)
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
