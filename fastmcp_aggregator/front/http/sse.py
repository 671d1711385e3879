"""The transport of 2024-11-05, HTTP with SSE, for old clients: `GET /mcp/sse`, `POST /mcp/messages?session_id=…`.

Theory. A client opens one stream, is told there where to send its messages, and gets everything on that stream. A
message is answered with 202 at once, because clients send one after the other and may have to answer a question
meanwhile. But the request that it came with is over for the apps around (the gate, the drain) only when its answer has
been sent on the stream: so it keeps its slot, and the end of the program waits for it. A session
is its stream: when that ends, for whatever reason, so do its requests, and it can belong to nobody else than who
opened it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import anyio
from fastmcp import FastMCP
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.lowlevel.server import Server
from mcp.server.runner import serve_loop
from mcp.server.streamable_http_manager import DEFAULT_MAX_SESSIONS
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, RequestId
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.auth.claims import principal_in
from fastmcp_aggregator.front.http.connection import unwatched, whole_body
from fastmcp_aggregator.front.http.gate import RETRY_AFTER
from fastmcp_aggregator.front.http.security import guarded_route, is_json, without_head
from fastmcp_aggregator.library_internals import create_context_streams, requestor_of, sdk_server_of
from fastmcp_aggregator.message_streams import encode, read_message
from fastmcp_aggregator.policies.stack import Policies

logger = logging.getLogger(__name__)

_SEND_TIMEOUT = 60.0


def sse_routes(
    app: FastMCP[Any],
    path: str,
    policies: Policies,
    group_id: str,
    *,
    most_sessions: int = DEFAULT_MAX_SESSIONS,
    send_timeout: float = _SEND_TIMEOUT,
) -> list[Route]:
    """The two endpoints of the app of a group, whose MCP endpoint is at `path`. A client that does not take what it is
    sent for `send_timeout` seconds has left.
    """
    base = path.rstrip("/")
    sessions = _Sessions(sdk_server_of(app), f"{base}/messages", policies, group_id, most_sessions, send_timeout)
    return [
        without_head(guarded_route(f"{base}/sse", sessions.opened, app.auth)),
        guarded_route(f"{base}/messages", sessions.posted, app.auth, methods=["POST"]),
    ]


def where_mcp_is(path: str, *, has_sse: bool) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The answer to requests of addresses where nothing is: many clients are given those of other programs, such as
    `/sse`. What a route says in its own words stays.
    """

    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.detail != HTTPStatus.NOT_FOUND.phrase:
            return PlainTextResponse(error.detail, error.status_code, error.headers)
        base = request.scope.get("root_path", "") + path
        old = f"; for clients that know only SSE: {base.rstrip('/')}/sse" if has_sse else ""
        return PlainTextResponse(f"Not Found: the MCP endpoint is {base}{old}", 404)

    return answer


class _Session:
    """One client's stream, and its requests that are not answered yet."""

    def __init__(self, owner: AuthorizationContext | None) -> None:
        self.id = uuid4().hex
        self.owner = owner
        self._incoming, self.read_stream = create_context_streams[SessionMessage | Exception](0)
        self.write_stream, self._outgoing = create_context_streams[SessionMessage](0)
        self._unanswered: dict[RequestId, anyio.Event] = {}

    def has_unanswered(self, message: JSONRPCMessage) -> bool:
        return isinstance(message, JSONRPCRequest) and message.id in self._unanswered

    async def take(self, message: JSONRPCMessage, request: Request) -> anyio.Event:
        """Have a message of the client served; the event is set when there is nothing more to be done for it.

        Raises:
            anyio.BrokenResourceError, anyio.ClosedResourceError: the session is over.
        """
        over = anyio.Event()

        async def settled() -> None:
            self._settle(request_id)

        request_id = message.id if isinstance(message, JSONRPCRequest) else None
        if request_id is None:
            over.set()
        else:
            self._unanswered[request_id] = over
        metadata = ServerMessageMetadata(request_context=request, on_request_unanswered=settled)
        try:
            await self._incoming.send(SessionMessage(message, metadata=metadata))
        except BaseException:
            self._settle(request_id)
            raise
        return over

    async def events(self, endpoint: str) -> AsyncIterator[dict[str, str] | bytes]:
        """The events of the stream. When the next event is asked for, the one before has been sent."""
        yield {"event": "endpoint", "data": f"{endpoint}?session_id={self.id}"}
        async for item in self._outgoing:
            yield b"event: message\ndata: " + encode(item.message) + b"\n"
            if isinstance(item.message, JSONRPCResponse | JSONRPCError):
                self._settle(item.message.id)

    def close(self) -> None:
        """The stream has ended: nothing more comes in or goes out."""
        self._outgoing.close()
        self._incoming.close()
        for request_id in list(self._unanswered):
            self._settle(request_id)

    def _settle(self, request_id: RequestId | None) -> None:
        over = self._unanswered.pop(request_id, None) if request_id is not None else None
        if over is not None:
            over.set()


class _Sessions:
    """The sessions of one app. They live in the requests that opened their streams."""

    def __init__(
        self, server: Server[Any], endpoint: str, policies: Policies, group_id: str, most: int, send_timeout: float
    ) -> None:
        self._most = most
        self._send_timeout = send_timeout
        self._server = server
        self._policies = policies
        self._group_id = group_id
        self._endpoint = endpoint
        self._by_id: dict[str, _Session] = {}

    async def opened(self, _: Request) -> Response:
        if len(self._by_id) >= self._most:
            return PlainTextResponse("too many open sessions", 503, {"Retry-After": RETRY_AFTER})
        return _Stream(self.serve)

    async def posted(self, request: Request) -> Response:
        """Answer a request that brings a message; what is to be done for the message comes after the answer."""
        session = self._of(request)
        if session is None:
            return PlainTextResponse("there is no such session", 404)
        message = await _message_of(request)
        if isinstance(message, Response):
            return message
        if session.has_unanswered(message):
            return PlainTextResponse("a request with this id is not answered yet", 400)
        try:
            over = await session.take(message, Request(unwatched(request.scope)))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return PlainTextResponse("the session is over", 404)
        return PlainTextResponse("Accepted", 202, background=BackgroundTask(over.wait))

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a session on its stream, as long as that is open."""
        session = _Session(requestor_of(scope))
        events = session.events(scope.get("root_path", "") + self._endpoint)
        self._by_id[session.id] = session
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._serve, session)
                with suppress(SendTimeoutError):
                    await EventSourceResponse(events, send_timeout=self._send_timeout)(scope, receive, send)
                session.close()
        finally:
            del self._by_id[session.id]
            session.close()

    async def _serve(self, session: _Session) -> None:
        try:
            await serve_loop(
                self._server, session.read_stream, session.write_stream, lifespan_state={}, session_id=session.id
            )
        except Exception:
            logger.exception("a session of the SSE transport broke off")

    def _of(self, request: Request) -> _Session | None:
        """The session that a message is for; for everybody but its owner it does not exist."""
        session = self._by_id.get(request.query_params.get("session_id", ""))
        if session is not None and session.owner != requestor_of(request.scope):
            path, reason = request.scope["path"], "the session belongs to another caller"
            self._policies.request_denied(principal_in(request.scope), self._group_id, path, reason)
            return None
        return session


async def _message_of(request: Request) -> JSONRPCMessage | Response:
    """The message that a request brings, or the answer if it brings none."""
    if not is_json(request.scope):
        return PlainTextResponse("the body must be JSON: send it with `Content-Type: application/json`", 415)
    body = await whole_body(request)
    if body is None:
        return PlainTextResponse("the body is larger than 4 MiB", 413)
    try:
        return read_message(body)
    except ValueError:
        return PlainTextResponse("the body is not a JSON-RPC message", 400)


class _Stream(Response):
    """The response on which a session is served."""

    def __init__(self, serve: ASGIApp) -> None:
        super().__init__()
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send)
