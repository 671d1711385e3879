"""The drain: lets requests in flight finish when the HTTP server is to end.

New ones are turned away by the gate, which is told by the scope that the server ends: what belongs to a session may be
an answer that a request in flight waits for, and only who reads it can tell.

Those that do not finish in time are cut off here: uvicorn would do it with a traceback for each in the log. Streams
that only listen never finish by themselves, so they are not counted; they are ended afterwards.
"""

from __future__ import annotations

from contextlib import ExitStack

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.concurrency.limiter import InFlightCounter
from fastmcp_aggregator.front.http.gate import IS_ENDING, ON_LISTENING, turn_away


class Drain:
    """An ASGI app around another, which counts the requests that are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.in_flight = InFlightCounter()
        self._answering: set[anyio.CancelScope] = set()
        self._is_over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[IS_ENDING] = self.in_flight.is_closing
        if self._is_over:
            await turn_away(scope, receive, send, "the server is ending")
        elif self.in_flight.is_closing or scope["method"] == "GET":
            await self._answer(scope, receive, send)
        else:
            with ExitStack() as counted:
                counted.enter_context(self.in_flight.track())
                scope[ON_LISTENING] = counted.close
                await self._answer(scope, receive, send)

    async def close(self) -> None:
        """Take no new requests, let those in flight finish within a bound, and cut off the others."""
        await self.in_flight.close()
        self._is_over = True
        for answering in self._answering:
            answering.cancel()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app answer, and end its response for it: the SDK's streams just stop when they are told to."""
        response = Sending(send)
        with anyio.CancelScope() as answering:
            self._answering.add(answering)
            try:
                await self._app(scope, receive, response.send)
            finally:
                self._answering.discard(answering)
        if response.has_begun and not response.is_complete:
            await send({"type": "http.response.body"})
        elif answering.cancel_called and not response.has_begun:
            await turn_away(scope, receive, send, "the server is ending")


class Sending:
    """How far a response has come."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_complete = False

    async def send(self, message: Message) -> None:
        self.has_begun = True
        self.is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)
