"""The connection of one HTTP request: its body, read ahead, and its end, by which the work for it is cancelled.

Theory. The SDK reads a body in the middle of its work; a client that leaves before its end would be an error in the log
then. So the gate reads it before, and what is behind receives it as if it was just coming in; a slow client keeps only
itself waiting.

A modern client cancels by closing the connection (2026-07-28, transports), and the SDK ends its request. A legacy
client may come back for the answer (2025-11-25: "Disconnection SHOULD NOT be interpreted as the client cancelling its
request"), but only with the id of an event. So an ASGI layer around FastMCP's app watches the connection once the
request has been read, and a middleware of the SDK's server does the work inside of a scope: where the answer has no
stream with ids, it ends with the connection; where it has one, when the client has not come back for a while. Until
then the request is not over for the layers around: it keeps its slot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.front.http.resume.event_store import (
    RESUMABLE_REQUEST,
    AnswerStream,
    KeptEvents,
    ResumableRequest,
)
from fastmcp_aggregator.front.http.resume.resumption import resume
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.long_texts import LONG, LongResult
from fastmcp_aggregator.protocol.parts import PARTS_LIMIT, has_too_many_parts

BODY_LIMIT = DEFAULT_MAX_REQUEST_BODY_SIZE
"""Bytes of a body that the SDK reads, at most; what is longer it refuses (413)."""
MIN_RATE = 16 * 1024
"""Bytes a second that a body must come with, once its first seconds are over."""
HAS_BODY = "fastmcp_aggregator.has_body"
"""The key of a request's scope that says that its body has come, so that to receive it takes no time."""
BODY = "fastmcp_aggregator.body"
"""The key of a request's scope for its `Body`, once that has come."""
WHOLE_RESPONSE = "fastmcp_aggregator.whole_response"
"""The type of a message that has a whole response: its `status`, its `headers` without the length, and its `body`. It
is taken where the scope's `extensions` have it, and costs half of what two messages do.
"""
_SCOPE_KEY = "fastmcp_aggregator.connection"


async def whole_body(request: Request, limit: int = BODY_LIMIT) -> bytes | None:
    """Read a request's body; None if it is over the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


class NoRoom(Exception):
    """There is no room for more of a body."""


class TooManyParts(Exception):
    """A body would cost too much to parse."""

    def __init__(self, content: bytes) -> None:
        super().__init__(f"{len(content)} bytes with too many parts")
        self.content = content


class Body:
    """One request's body. After `read`, the app behind receives it from here as if it was just coming in."""

    def __init__(self, receive: Receive, has_room: Callable[[int], bool]) -> None:
        """`has_room` is asked for each part that has come, by its bytes."""
        self._receive = receive
        self._has_room = has_room
        self.messages: deque[Message] = deque()
        """Messages that nobody has received yet."""
        self.size = 0
        """Bytes that have come, and for which there was room."""

    async def read(self, *, bound: float, grace: float, is_here: bool = False) -> bytes:
        """Wait for all of it, or for as much as is over the limit.

        The body may take `grace` seconds, more as more of it comes, and never more than `bound`. It takes none if it
        `is_here`.

        Raises:
            ClientDisconnect: the client has left.
            NoRoom: there is none for what has come.
            TimeoutError: it comes too slowly.
            TooManyParts: it would cost too much to parse.
        """
        if is_here:
            await self._read_part()
        else:
            async with asyncio.timeout(min(bound, grace)) as deadline:
                began = asyncio.get_running_loop().time()
                while await self._read_part():
                    deadline.reschedule(began + min(bound, grace + self.size / MIN_RATE))
        content: bytes
        if len(self.messages) == 1:  # as nearly always
            content = self.messages[0].get("body", b"")
        else:
            content = b"".join([message.get("body", b"") for message in self.messages])
        if len(content) > PARTS_LIMIT:
            if has_too_many_parts(content):
                raise TooManyParts(content)
            await asyncio.sleep(0)  # to look at it took milliseconds, and to parse it takes more: others go first
        return content

    async def _read_part(self) -> bool:
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        part = len(message.get("body", b""))
        if part and not self._has_room(part):
            raise NoRoom
        self.messages.append(message)
        self.size += part
        return bool(message.get("more_body")) and self.size <= BODY_LIMIT

    async def receive(self) -> Message:
        return self.messages.popleft() if self.messages else await self._receive()


class NoBody:
    """The receiving side of a GET: a body means nothing there (RFC 9110, section 9.3.1), so what comes is dropped."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_begun = False

    async def receive(self) -> Message:
        if not self._has_begun:
            self._has_begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while (message := await self._receive())["type"] == "http.request":
            pass
        return message


class Sender(Protocol):
    """Sends a response, with a long result where something else stands for it."""

    long: LongResult | None

    async def send(self, message: Message) -> None: ...


class Disconnects:
    """An ASGI layer that cancels the work inside of `cancel_on_disconnect` when a client has left for good.

    With `events`, the event store of the app, a legacy client can come back for an answer, and has `wait` seconds for
    it each time. With a `sender`, long results are encoded once; nobody else may see the app's responses before it.
    """

    def __init__(
        self,
        app: ASGIApp,
        events: KeptEvents | None = None,
        wait: float = 0.0,
        sender: Callable[[Send], Sender] | None = None,
    ) -> None:
        self._app = app
        self._events = events
        self._wait = wait
        self._sender = sender

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"] if scope["type"] == "http" else None
        if method == "GET":
            await resume(self._app, self._events, scope, receive, send)
        elif method != "POST":
            await self._app(scope, receive, send)
        else:
            with self._resumable(scope) as resumable:
                sender = None if self._sender is None else self._sender(send)
                connection = _Connection(receive, resumable, sender)
                try:
                    await self._serve(scope, connection, send if sender is None else sender.send)
                except asyncio.CancelledError:
                    connection.work.cancel()  # nobody is to have the answer
                    raise

    async def _serve(self, scope: Scope, connection: _Connection, send: Send) -> None:
        try:
            await self._app({**scope, _SCOPE_KEY: connection}, connection.receive, send)
        finally:
            await connection.close()
        stream = connection.resumable.stream
        if stream is not None:
            stream.leave()
            await stream.while_awaited(self._wait)
            connection.work.cancel()

    @contextmanager
    def _resumable(self, scope: Scope) -> Iterator[ResumableRequest]:
        resumable = ResumableRequest(scope)
        if self._events is None:
            yield resumable
            return
        token = RESUMABLE_REQUEST.set(resumable)
        try:
            yield resumable
        finally:
            RESUMABLE_REQUEST.reset(token)
            if resumable.stream is not None:
                self._events.logs.retire(resumable.stream)


async def cancel_on_disconnect(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Answer an HTTP request; cancel the work when its client has left for good.

    Raises:
        MCPError: the client has left.
    """
    connection: _Connection | None = ctx.request.scope.get(_SCOPE_KEY) if ctx.request is not None else None
    if connection is None or ctx.request_id is None:
        return await call_next(ctx)
    with connection.work, _streamed(ctx, connection.resumable.stream) as streamed:
        return connection.shortened(await call_next(streamed))
    raise MCPError(CONNECTION_CLOSED, "the client has left, and did not come back in time")


def unwatched(scope: Scope) -> Scope:
    """The scope of a request whose answer comes another way, so that the end of its connection means nothing."""
    return {key: value for key, value in scope.items() if key != _SCOPE_KEY}


@contextmanager
def _streamed(
    ctx: ServerRequestContext[Any, Any], stream: AnswerStream | None
) -> Iterator[ServerRequestContext[Any, Any]]:
    """The request, whose `close_sse_stream` ends whatever response carries the stream of its answer."""
    if stream is None:
        yield ctx
        return
    stream.close_response = ctx.close_sse_stream
    try:
        yield replace(ctx, close_sse_stream=stream.hang_up)
    finally:
        stream.end()


class _Connection:
    """The receiving side of one request's connection. `work` is cancelled when the client leaves for good."""

    def __init__(self, receive: Receive, resumable: ResumableRequest, sender: Sender | None) -> None:
        self.work = anyio.CancelScope()
        self.resumable = resumable
        self._receive = receive
        self._sender = sender
        self._watching: asyncio.Task[Message] | None = None
        self._is_closed = False

    async def receive(self) -> Message:
        """The next message of ASGI's `receive`; once the body is read, that is the end of the connection."""
        if self._is_closed:
            return {"type": "http.disconnect"}
        if self._watching is not None:
            return await asyncio.shield(self._watching)
        message = await self._receive()
        if not message.get("more_body", False):
            self._watching = asyncio.create_task(self._watch(), name="client disconnect")
        return message

    def shortened(self, result: HandlerResult) -> HandlerResult:
        """The result, or what stands for it until it is sent: the transport would encode it up to three times more."""
        if self._sender is None:
            return result
        try:
            encoded = raw_json.encode(result)
        except (*raw_json.Malformed, TypeError, OverflowError):
            return result
        if len(encoded) <= LONG:
            return result
        long = LongResult.of(encoded)
        if not self._is_closed:
            self._sender.long = long
        return long.as_result()

    async def close(self) -> None:
        self._is_closed = True
        watching, self._watching = self._watching, None  # or it refers to itself, by the traceback of its end
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})

    async def _watch(self) -> Message:
        message = await self._receive()
        if self.resumable.stream is None:
            self.work.cancel()
        return message
