"""Whether the client of an HTTP request is still there: what is done for it goes on as long as it may want the answer.

Theory. A modern client cancels by closing the connection (2026-07-28, transports), and the SDK ends its request. A
legacy client may come back for the answer (2025-11-25: "Disconnection SHOULD NOT be interpreted as the client
cancelling its request"), but only with the id of an event. So an ASGI app around FastMCP's watches the connection once
the request has been read, and a middleware of the SDK's server does the work inside of a scope: where the answer has no
stream with ids, it ends with the connection; where it has one, when the client has not come back for a while. Until
then the request is not over for the apps around: it keeps its place among those that run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.front.http.resume.answers import AnswerStream
from fastmcp_aggregator.front.http.resume.event_store import EXCHANGE, Exchange, KeptEvents
from fastmcp_aggregator.front.http.resume.resumption import session_id_of

_SCOPE_KEY = "fastmcp_aggregator.presence"


class Presence:
    """An ASGI app around another, which ends the work inside of `cancel_on_disconnect` when a client has left.

    With `events`, the event store of the app, a client that can come back has `wait` seconds for it each time.
    """

    def __init__(self, app: ASGIApp, events: KeptEvents | None = None, wait: float = 0.0) -> None:
        self._app = app
        self._events = events
        self._wait = wait

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        with self._exchange(scope) as exchange:
            connection = _Connection(receive, exchange)
            try:
                await self._serve(scope, connection, send)
            except asyncio.CancelledError:
                connection.work.cancel()  # nobody is to have the answer
                raise

    async def _serve(self, scope: Scope, connection: _Connection, send: Send) -> None:
        try:
            await self._app({**scope, _SCOPE_KEY: connection}, connection.receive, send)
        finally:
            await connection.close()
        stream = connection.exchange.stream
        if stream is not None:
            stream.leave()
            await stream.while_awaited(self._wait)
            connection.work.cancel()

    @contextmanager
    def _exchange(self, scope: Scope) -> Iterator[Exchange]:
        exchange = Exchange(session_id_of(scope))
        if self._events is None:
            yield exchange
            return
        token = EXCHANGE.set(exchange)
        try:
            yield exchange
        finally:
            EXCHANGE.reset(token)
            if exchange.stream is not None:
                self._events.logs.retire(exchange.stream)


async def cancel_on_disconnect(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Answer an HTTP request; the work is cancelled when its client has left for good.

    Raises:
        MCPError: the client has left.
    """
    connection: _Connection | None = ctx.request.scope.get(_SCOPE_KEY) if ctx.request is not None else None
    if connection is None or ctx.request_id is None:
        return await call_next(ctx)
    with connection.work, _streamed(ctx, connection.exchange.stream) as streamed:
        return await call_next(streamed)
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
    stream.begin(ctx.close_sse_stream)
    try:
        yield replace(ctx, close_sse_stream=stream.hang_up)
    finally:
        stream.end()


class _Connection:
    """The receiving side of one request's connection. `work` is cancelled when the client leaves for good."""

    def __init__(self, receive: Receive, exchange: Exchange) -> None:
        self.work = anyio.CancelScope()
        self.exchange = exchange
        self._receive = receive
        self._watching: asyncio.Task[Message] | None = None

    async def receive(self) -> Message:
        """What ASGI's `receive` gives; once the body is read, that is the end of the connection."""
        if self._watching is not None:
            return await asyncio.shield(self._watching)
        message = await self._receive()
        if not message.get("more_body", False):
            self._watching = asyncio.create_task(self._watch(), name="presence")
        return message

    async def close(self) -> None:
        """Watch no longer."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> Message:
        message = await self._receive()
        if self.exchange.stream is None:
            self.work.cancel()
        return message
