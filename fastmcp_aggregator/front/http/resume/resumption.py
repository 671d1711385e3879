"""Stream resumption: a GET with the id of the last event that the client has had (`Last-Event-ID`)."""

from __future__ import annotations

import asyncio

from mcp.server.streamable_http import LAST_EVENT_ID_HEADER
from mcp_types import INVALID_REQUEST
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.front.http.resume.event_store import (
    RESUMABLE_REQUEST,
    KeptEvents,
    ResumableRequest,
    header,
    is_of_answer,
)

LAST_EVENT_ID = LAST_EVENT_ID_HEADER.encode()


async def resume(app: ASGIApp, events: KeptEvents | None, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a GET by the app, whose event store is `events`, with what came after the event that the client names."""
    event_id = _last_event_id(scope)
    if event_id is None:
        await app(scope, receive, send)
        return
    if events is None:
        # The SDK would leave it without any answer. Without the header it opens a new stream: all that is left to do.
        await app(_without_event(scope), receive, send)
        return
    resumable = ResumableRequest(scope)
    if events.find(event_id, resumable.session_id) is not None:
        response = _Response(send)
        resumable.deliver = response.deliver
        token = RESUMABLE_REQUEST.set(resumable)
        try:
            await app(scope, receive, response.send)
        finally:
            RESUMABLE_REQUEST.reset(token)
    elif is_of_answer(event_id):
        await app(scope, receive, _Refusal(scope, receive, send).send)
    else:
        await app(_without_event(scope), receive, send)


def _last_event_id(scope: Scope) -> str | None:
    value = header(scope, LAST_EVENT_ID)
    return None if value is None else value.decode("latin-1")


def _without_event(scope: Scope) -> Scope:
    return {**scope, "headers": [header for header in scope["headers"] if header[0] != LAST_EVENT_ID]}


class _Response:
    """A response of the SDK's, on which events are delivered between its beginning and its end."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = asyncio.Event()

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.start":
            self._has_begun.set()

    async def deliver(self, event_id: str, data: bytes) -> None:
        await self._has_begun.wait()
        body = b"id: " + event_id.encode() + b"\r\nevent: message\r\ndata: " + data + b"\r\n\r\n"
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


class _Refusal:
    """A refusal in place of a response of the SDK's without events, after which a client would come back again and
    again.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._has_refused = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 300:
            self._has_refused = True
            error = {"code": INVALID_REQUEST, "message": "Last-Event-ID: this event is not kept, or not any more"}
            response = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)
            await response(self._scope, self._receive, self._send)
        elif not self._has_refused:
            await self._send(message)
