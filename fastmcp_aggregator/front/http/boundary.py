"""The outer boundary of the HTTP app: each request gets one whole response, whatever breaks or ends behind it.

The check of the Host: FastMCP's, whose answers are kept.

The error boundary: an unhandled exception becomes an internal error with an id; the traceback is logged under that id.

The pace: a few requests begin in each turn of the event loop, so that no turn is long.

The drain: when the HTTP server is to end, readiness checks are told first, and each response closes its connection,
while everything is still served; then requests in flight may finish. New ones are rejected by
the gate, which is told by the scope that the server shuts down: what belongs to a session may be an answer that a
request in flight waits for, and only who reads it can tell. Those that do not finish in time are cancelled here:
uvicorn would do it with a traceback for each in the log. Streams that only listen never finish by themselves, so they
are not counted; they are ended afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import anyio
from opentelemetry.context import attach, detach
from opentelemetry.propagate import extract
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.concurrency.limiter import DRAIN_TIMEOUT, Holder
from fastmcp_aggregator.front.http.connection import WHOLE_RESPONSE
from fastmcp_aggregator.front.http.endpoints import WHITE_SPACE
from fastmcp_aggregator.front.http.gate import (
    CONNECTION,
    IS_ENDING,
    IS_LEAVING,
    ON_LISTENING,
    SHUTTING_DOWN,
    is_look,
    reject,
)
from fastmcp_aggregator.front.wire.errors import unexpected
from fastmcp_aggregator.observability.telemetry import is_tracing
from fastmcp_aggregator.protocol.long_texts import LongResult


class EndableWork:
    """Work for a request, in its task, until somebody else ends it; that is not seen outside of it."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] | None = task
        """None once it is over, so that nothing has to be found by a garbage collection."""
        self._cancelling = task.cancelling()
        self._is_cancelled = False
        self.was_ended = False

    def end(self) -> None:
        """Cancel it, soon, unless it is over."""
        if self._task is not None and not self.was_ended:
            self.was_ended = True
            self._task.get_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._is_cancelled = True
            self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: object) -> bool:
        task, self._task = self._task, None
        assert task is not None
        is_alone = self._is_cancelled and task.uncancel() <= self._cancelling
        return is_alone and kind is asyncio.CancelledError


class Drain:
    """An ASGI layer that knows the requests that are being answered, and waits for them at the end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._answering: set[EndableWork] = set()
        self._awaited: set[EndableWork] = set()
        """Requests among them that finish by themselves."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_leaving = False
        self._is_closing = False
        self._is_over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[IS_LEAVING], scope[IS_ENDING] = self._is_leaving, self._is_closing
        if self._is_leaving:
            send = _closing(send)
            scope.pop("extensions", None)  # it sees no head of a whole response
        if self._is_over:
            await reject(scope, receive, send, SHUTTING_DOWN)
            return
        response = scope[_RESPONSE] = Sending(send)
        with EndableWork() as answering:
            self._answering.add(answering)
            if not self._is_closing and scope["method"] != "GET":
                if not self._awaited:
                    self._idle.clear()
                self._awaited.add(answering)
                scope[ON_LISTENING] = partial(self._finished, answering)
            try:
                await self._app(scope, receive, response.send)
            finally:
                del scope[_RESPONSE]  # which refers to the request, and so to the scope
                self._answering.discard(answering)
                self._finished(answering)
        # The SDK's streams just stop when they are told to.
        if response.has_begun and not response.is_complete:
            await send({"type": "http.response.body"})
        elif answering.was_ended and not response.has_begun:
            await reject(scope, receive, send, SHUTTING_DOWN)

    async def leave(self, seconds: float) -> None:
        """Serve everything for so many seconds, in which load balancers learn that they should ask others."""
        self._is_leaving = True
        await asyncio.sleep(seconds)

    async def until_idle(self) -> None:
        """Wait until nothing is being answered that finishes by itself."""
        await self._idle.wait()

    async def close(self, timeout: float = DRAIN_TIMEOUT) -> None:
        """Take no new requests, let those in flight finish for so many seconds, and cancel the others."""
        self._is_leaving = self._is_closing = True
        with anyio.move_on_after(timeout):
            await self._idle.wait()
        self._is_over = True
        for answering in self._answering:
            answering.end()

    def _finished(self, answering: EndableWork) -> None:
        self._awaited.discard(answering)
        if not self._awaited:
            self._idle.set()


def _closing(send: Send) -> Send:
    """Send a response after which its connection is closed, so that none is when the next request is on its way."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return sent


class ErrorBoundary:
    """An ASGI layer that answers in place of the app when that breaks before it has answered.

    White space around a header's value is no part of it (RFC 9110, section 5.5), but some parsers of other servers
    leave it there: it is stripped before anything reads the headers. Ours has done that.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if CONNECTION not in scope:
            scope["headers"] = [(name, value.strip(WHITE_SPACE)) for name, value in scope["headers"]]
        response, watched = sending_of(scope, send)
        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            raise
        except Exception as error:
            if response.has_begun:
                raise
            told = unexpected(error, f"{scope['method']} {scope['path']}").error
            body = {"jsonrpc": "2.0", "id": None, "error": told.model_dump(mode="json", exclude_none=True)}
            await JSONResponse(body, 500)(scope, receive, send)


class Pace:
    """An ASGI layer that lets a few requests begin in each turn of the event loop; the others begin in the next ones,
    by the lines of their connections in turn. While a turn is short, and after one that was, there are twice as many,
    for each turn costs something.

    So no request is behind more than a few of a caller that floods the hub. A look at whether the hub is ready, which
    is not counted, is behind no other requests but looks, of which one begins in each turn. A GET may be answered for
    as long as its client listens, so it is not counted among those that are served.
    """

    most = 4
    """Requests that begin in one turn, while there are more of them, and turns are long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._served = 0
        self._turns = Lane(self.most, 2 * self.most)
        self._looks = Lane(1, 1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "GET":
            await (self._looks.take() if is_look(scope) else self._turns.take(_line_of(scope)))
            await self._app(scope, receive, send)
            return
        self._served += 1
        try:
            if self._served > self.most and not self._turns.begin():
                await self._turns.wait(_line_of(scope))
            await self._app(scope, receive, send)
        finally:
            self._served -= 1


def _line_of(scope: Scope) -> Holder:
    """The key of a request's queue, if our server runs the app."""
    return getattr(scope.get(CONNECTION), "line", None)


_SHORT = 0.003
"""Seconds of a turn that was short."""


class Lane:
    """Lets a few begin in each turn of the event loop."""

    def __init__(self, most: int, most_if_short: int) -> None:
        """So many; and so many while the turn is short, and after one that was."""
        self._most = self._room = most
        self._most_if_short = most_if_short
        self.begun = 0
        self._turn_began = 0.0
        self._loop: asyncio.AbstractEventLoop  # of the present turns
        self._waiting: dict[Holder, deque[asyncio.Future[None]]] = {}

    async def take(self, holder: Holder = None) -> None:
        """Wait until one of this holder may begin."""
        if not self.begin():
            await self.wait(holder)

    def begin(self) -> bool:
        """True if one may begin in this turn; then it counts."""
        if not self.begun:
            self._loop = asyncio.get_running_loop()
            self._room, self._turn_began = self._most_if_short, self._loop.time()
            self._loop.call_soon(self._next)
        elif self.begun == self._most < self._room and self._loop.time() - self._turn_began >= _SHORT:
            self._room = self._most
        if self.begun >= self._room:
            return False
        self.begun += 1
        return True

    async def wait(self, holder: Holder) -> None:
        """Wait for one of the next turns."""
        begins: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(holder, deque()).append(begins)
        await begins

    def _next(self) -> None:
        now = self._loop.time()
        self._room = self._most_if_short if now - self._turn_began < _SHORT else self._most
        self._turn_began = now
        self.begun = 0
        while self._waiting and self.begun < self._room:
            holder = next(iter(self._waiting))
            queue = self._waiting.pop(holder)
            begins = queue.popleft()
            if queue:
                self._waiting[holder] = queue  # behind the others
            if not begins.done():  # its request was cancelled
                begins.set_result(None)
                self.begun += 1
        if self.begun:
            self._loop.call_soon(self._next)


class RemoteParent:
    """An ASGI layer that takes up the trace that a request tells in a header, unless its message tells one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or b"traceparent" not in dict(scope["headers"]) or not is_tracing():
            return self._app(scope, receive, send)
        return self._traced(scope, receive, send)

    async def _traced(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = attach(extract(_told(scope)))
        try:
            await self._app(scope, receive, send)
        finally:
            detach(token)


def _told(scope: Scope) -> dict[str, str]:
    wanted = (b"traceparent", b"tracestate")
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in wanted}


_RESPONSE = "fastmcp_aggregator.response"
"""The key of a request's scope for the progress of its response, if it is behind a `Drain`."""


def sending_of(scope: Scope, send: Send) -> tuple[Sending, Send]:
    """The progress of the response of a request, and the `send` that it is to be sent by."""
    known: Sending | None = scope.get(_RESPONSE)
    if known is not None:
        return known, send
    response = Sending(send)
    return response, response.send


class Sending:
    """The progress of a response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_complete = False

    async def send(self, message: Message) -> None:
        self.has_begun = True
        kind = message["type"]
        self.is_complete = kind == WHOLE_RESPONSE or (
            kind == "http.response.body" and not message.get("more_body", False)
        )
        await self._send(message)


@dataclass(eq=False, slots=True)
class SendingLongResults:
    """The sending side of a response, by which a long result goes out: whole, so that it counts until it is read."""

    _send: Send
    long: LongResult | None = None
    _start: Message | None = None
    """The start of the response, until its length is known."""

    async def send(self, message: Message) -> None:
        if self.long is not None and message["type"] == "http.response.start":
            self._start = message
            return
        body = message.get("body", b"")
        text = None if self.long is None else self.long.put_into(body)
        start, self._start = self._start, None
        if text is not None:
            self.long, message = None, {**message, "body": text.whole()}
        if start is not None:
            await self._send(start if text is None else _longer(start, len(text) - len(body)))
        await self._send(message)


def _longer(start: Message, size: int) -> Message:
    """The start of a response whose body has so many bytes more."""
    headers = [
        (name, b"%d" % (int(value) + size) if name == b"content-length" else value) for name, value in start["headers"]
    ]
    return {**start, "headers": headers}
