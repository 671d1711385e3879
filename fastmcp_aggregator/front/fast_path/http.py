"""The fast path of streamable HTTP: an ASGI layer that answers plain calls with JSON, before the SDK's transport.

Theory. It stands behind everything that may refuse a request (Host, Origin, credentials, the gate), and takes only what
the SDK's transport would take: whatever is unusual in the headers is the transport's. Where an answer takes longer than
`ANSWER_TIMEOUT`, or the server says something else first, the same request goes on to the transport, which streams the
answer; the call that was begun goes along in its scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import Context
from functools import lru_cache
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.connection import Connection
from mcp.server.streamable_http import REQUEST_CANCELLED, check_accept_headers
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, MCP_PARAM_HEADER_PREFIX
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from msgspec import Raw
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.concurrency.limiter import released_while_waiting
from fastmcp_aggregator.front.fast_path.call import FastCall, error_line
from fastmcp_aggregator.front.fast_path.handover import SCOPE_KEY
from fastmcp_aggregator.front.fast_path.path import CALLS, Declined, FastPath, SeenCaller, TakesTurns
from fastmcp_aggregator.front.http.connection import BODY, WHOLE_RESPONSE
from fastmcp_aggregator.front.http.endpoints import HEAD, Head, head_of
from fastmcp_aggregator.front.http.rest import (
    ENVELOPE,
    JSON_METHODS,
    REQUEST_ID,
    enveloped,
    misnamed,
    refusal,
    request_id_of,
)
from fastmcp_aggregator.front.http.security import is_json
from fastmcp_aggregator.library_internals import HeldSession, SessionEndpoint, route_path, session_of
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.protocol.long_texts import LongText
from fastmcp_aggregator.relay.live_clients import LiveClients

ANSWER_TIMEOUT = 0.25
"""Seconds that an answer may take to be the only thing in its response."""
_UNUSUAL = frozenset({b"origin", b"content-encoding", b"transfer-encoding", b"last-event-id", b"expect"})
"""Headers with which a request is left to the transport."""
_PROTOCOL_PREFIX = b"mcp-"
_PARAM_PREFIX = MCP_PARAM_HEADER_PREFIX.lower().encode()
_JSON = (b"content-type", b"application/json")
_ENVELOPE = Raw(raw_json.encode(ENVELOPE))
_MODERN = Connection.from_envelope(LATEST_MODERN_VERSION, None, None)
"""Stands for the connection of any modern client: over HTTP it has no channel, and each request tells all about it."""


class FastEndpoint:
    """The ASGI layer around the SDK's transport, for one MCP endpoint."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        path: str,
        fast_path: FastPath,
        endpoint: SessionEndpoint,
        clients: LiveClients,
        scopes: Sequence[str] | None,
        keeps_answers: bool,
    ) -> None:
        """`scopes` are those that a request must have authenticated with; None: everybody is let in. `keeps_answers`:
        clients of 2025-11-25 can come back for every answer, so the transport serves them.
        """
        self._app = app
        self._path = path
        self._json_api = {f"{path.rstrip('/')}/{method}": method for method in JSON_METHODS}
        self._fast_path = fast_path
        self._endpoint = endpoint
        self._clients = clients
        self._scopes = None if scopes is None else frozenset(scopes)
        self._keeps_answers = keeps_answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = route_path(scope) if scope["type"] == "http" and scope["method"] == "POST" else None
        if path != self._path and path not in self._json_api:
            await self._app(scope, receive, send)
            return
        exchange = self._begin(scope, self._json_api.get(path))
        if exchange is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await (exchange.response if exchange.long is None else exchange.long)
            if response is None:
                await self._app({**scope, SCOPE_KEY: [exchange.fast]}, receive, send)
            else:
                await exchange.send(response, scope, send)
        finally:
            exchange.close()

    def _begin(self, scope: Scope, method: str | None) -> Exchange | None:
        """Begin what is a plain call; None: the app is to serve the request. `method` is that of the JSON API."""
        if BODY not in scope or not self._is_let_in(scope):
            return None
        first = scope[BODY].messages[0]  # which the app receives, should it serve the request
        body = first.get("body", b"")
        if first.get("more_body") or len(body) > self._fast_path.most_bytes:
            self._fast_path.decline("too large", body)
            return None
        exchange: Exchange | None = None
        is_begun = False
        try:
            if method is not None:
                if body and not is_json(scope):
                    return None
                request = json_request(method, body, request_id_of(scope["headers"]))
                exchange = self._of_json_api(scope)
            else:
                exchange = self._exchange(scope)  # first: to read a body takes longer
                request = raw_json.read_request(body)
            if self._fast_path.talkers.known and self._fast_path.is_left(request):
                return None
            is_begun = exchange.begin(request)
        except Declined as why:
            self._fast_path.decline(why.reason, body)
        except raw_json.Malformed:
            self._fast_path.decline("malformed", body)
        finally:
            if exchange is not None and not is_begun:
                exchange.close()
        return exchange if is_begun else None

    def _of_json_api(self, scope: Scope) -> JsonExchange:
        """The exchange with a program that speaks no MCP: as with a modern client that can do nothing."""
        return JsonExchange(self._fast_path, SeenCaller(_MODERN, is_modern=True, scope=scope))

    def _exchange(self, scope: Scope) -> Exchange:
        """The exchange with a client of either era, whose session, if it has one, is there and its own.

        Raises:
            Declined: it is for the transport to judge.
        """
        headers = _plain_headers(scope)
        version, session_id = headers.get("mcp-protocol-version"), headers.get("mcp-session-id")
        if version in MODERN_PROTOCOL_VERSIONS:
            if session_id is not None:
                raise Declined("headers")
            return Exchange(self._fast_path, SeenCaller(_MODERN, is_modern=True, scope=scope, headers=headers))
        if self._keeps_answers:
            raise Declined("resumable")
        if session_id is None:
            raise Declined("no session")
        connection = self._clients.sessions.get(session_id)
        session = session_of(self._endpoint, session_id, scope)
        if connection is None or session is None or not connection.initialize_accepted:
            raise Declined("no session")
        if connection.protocol_version != version:
            raise Declined("no session")
        seen = SeenCaller(connection, is_modern=False, scope=scope)
        return Exchange(self._fast_path, seen, session_id, HeldSession(session, asyncio.get_running_loop()))

    def _is_let_in(self, scope: Scope) -> bool:
        """True if FastMCP's `RequireAuthMiddleware`, around the transport, lets a request pass."""
        if self._scopes is None:
            return True
        is_known = isinstance(scope.get("user"), AuthenticatedUser)
        has_token = head_of(scope).first.get(b"authorization", b"")[:7].lower() == b"bearer "
        return is_known and has_token and self._scopes <= frozenset(getattr(scope.get("auth"), "scopes", ()))


class Exchange:
    """One request that is a plain call, and its response: its `Responder`."""

    has_room = True
    answer_timeout = ANSWER_TIMEOUT
    _request_id: Raw
    _then: Callable[[], None] | None = None
    """Called once the response is sent."""

    def __init__(
        self,
        fast_path: FastPath,
        seen: SeenCaller,
        session_id: str | None = None,
        session: HeldSession | None = None,
    ) -> None:
        """`session` is released when the request is over."""
        self.fast: FastCall | None = None
        self.long: Awaitable[LongText | None] | None = None
        """The response with a list that takes longer than a turn; None of it: as below."""
        self.response = Reply()
        """The response; None: the transport is to serve the request."""
        self._fast_path = fast_path
        self._seen = seen
        self._session_id = session_id
        self._session = session
        self._status = 200

    def begin(self, request: raw_json.RequestLine) -> bool:
        """Answer a plain request, or send a plain call to its child."""
        self._request_id = request.id
        if request.method not in CALLS:
            try:
                result = self._fast_path.reply(request, self._seen)
            except TakesTurns:
                self.long = self._fast_path.long_list(request, self._seen, self)
                return True
            if result is not None:
                self._resolve(self.encoded(result))
                return True
        self.fast = self._fast_path.begin(request, self, self._seen)
        return self.fast is not None

    async def send(self, response: bytes | LongText, scope: Scope, send: Send) -> None:
        """Send a response; a long one by and by, as it is read."""
        headers = [_JSON, *self.headers()]
        if isinstance(response, bytes) and WHOLE_RESPONSE in scope.get("extensions", ()):
            await send({"type": WHOLE_RESPONSE, "status": self._status, "headers": headers, "body": response})
            return
        headers.append((b"content-length", b"%d" % len(response)))
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        if isinstance(response, bytes):
            await send({"type": "http.response.body", "body": response})
            return
        with released_while_waiting.get()():
            for chunk in response.chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(0)
        await send({"type": "http.response.body"})

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of its response that are its own."""
        return [] if self._session_id is None else [(b"mcp-session-id", self._session_id.encode("latin-1"))]

    def close(self) -> None:
        """The request is over; if nobody has answered or resumed the call, nobody waits for it."""
        fast, self.fast = self.fast, None
        if fast is not None and not fast.is_over:
            fast.abandon()
        then, self._then = self._then, None
        if then is not None:
            then()
        if self._session is not None:
            self._session.release()

    # As the responder of the call.

    def encoded(self, result: Result) -> bytes:
        return raw_json.encode({"jsonrpc": "2.0", "id": self._request_id, "result": result})

    def answer(self, response: bytes, then: Callable[[], None] | None) -> None:
        self._then = then
        self.response.give(response)

    def refuse(self, error: MCPError) -> None:
        response = error_line(self._request_id, error)
        if self._seen.is_modern:
            self._status = ERROR_CODE_HTTP_STATUS.get(error.code, self._status)
        self._resolve(response)

    def take_over(self, fast: FastCall) -> None:
        self._resolve(None)

    def abandoned(self) -> None:
        """The client has cancelled its request (2025-11-25): its response ends all the same, as the SDK's would."""
        self._resolve(error_line(self._request_id, MCPError(REQUEST_CANCELLED, "Request cancelled")))

    def _resolve(self, response: bytes | None) -> None:
        self.response.give(response, later=True)


class Reply:
    """The reply that a request's task waits for. The task goes on as soon as it is given, and not in the next turn of
    the event loop: it is what asyncio takes for a future (`asyncio.isfuture`), whose callbacks come in a turn of their
    own.
    """

    __slots__ = ("_asyncio_future_blocking", "_is_cancelled", "_is_done", "_loop", "_response", "_waiter")

    def __init__(self) -> None:
        self._asyncio_future_blocking = False
        self._loop = asyncio.get_running_loop()
        self._response: bytes | None = None
        self._is_done = self._is_cancelled = False
        self._waiter: tuple[Callable[[Reply], object], Context] | None = None

    def give(self, response: bytes | None, *, later: bool = False) -> None:
        """Give it, unless it was given; `later` where the giver has more to do before the task goes on."""
        if self._is_done:
            return
        self._response, self._is_done = response, True
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            callback, context = waiter
            if later or asyncio.current_task(self._loop) is not None:
                self._loop.call_soon(callback, self, context=context)
            else:
                context.run(callback, self)

    def __await__(self) -> Generator[Any, Any, bytes | None]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self  # the task has asked for the result before it goes on
        return self._response

    # As asyncio's tasks ask for it.

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, callback: Callable[[Reply], object], *, context: Context) -> None:
        if self._is_done:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._waiter = callback, context

    def cancel(self, msg: object = None) -> bool:
        """The task is cancelled while it waits."""
        if self._is_done:
            return False
        self._is_cancelled = True
        self.give(None, later=True)
        return True

    def result(self) -> bytes | None:
        """Raises: CancelledError: the task was cancelled."""
        if self._is_cancelled:
            raise asyncio.CancelledError
        return self._response


class JsonExchange(Exchange):
    """One request of the JSON API: its response is the result alone."""

    _retry_after: tuple[tuple[bytes, bytes], ...] = ()

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(REQUEST_ID.lower().encode(), raw_json.bytes_of(self._request_id)[1:-1]), *self._retry_after]

    def refuse(self, error: MCPError) -> None:
        told = refusal(error)
        self._status = told.status_code
        self._retry_after = tuple(header for header in told.raw_headers if header[0] == b"retry-after")
        self._resolve(bytes(told.body))

    def encoded(self, result: Result) -> bytes:
        return raw_json.encode(result)


def json_request(method: str, body: bytes, request_id: str) -> raw_json.RequestLine:
    """The request that a program means which posts parameters to the path of a method.

    Raises:
        Malformed: they are no object.
        Declined: they will be refused.
    """
    params = raw_json.read_object(body) if body else {}
    if misnamed(method, params):
        raise Declined("params")
    envelope = _ENVELOPE
    if "_meta" in params:
        meta = raw_json.decode(params["_meta"])
        envelope = Raw(raw_json.encode(enveloped(meta)))
    return raw_json.RequestLine("2.0", Raw(b'"%s"' % request_id.encode()), method, {**params, "_meta": envelope})


def _plain_headers(scope: Scope) -> dict[str, str]:
    """The protocol's headers of a request, by name.

    Raises:
        Declined: they say something unusual, or the transport may not take a request with them.
    """
    head: Head = scope[HEAD]  # at which the gate has looked
    first = head.first
    if head.has_repeated or not _UNUSUAL.isdisjoint(first):
        raise Declined("headers")
    headers: dict[str, str] = {}
    for name, value in first.items():
        if name.startswith(_PROTOCOL_PREFIX):
            if name.startswith(_PARAM_PREFIX):
                raise Declined("headers")
            headers[name.decode("latin-1")] = value.decode("latin-1")
    is_json = first.get(b"content-type", b"").partition(b";")[0] == b"application/json"
    if not is_json or not _is_accepted(first.get(b"accept", b"")):
        raise Declined("headers")
    return headers


@lru_cache(maxsize=100)
def _is_accepted(accept: bytes) -> bool:
    """True if a client takes both kinds of response of the transport: JSON and event streams."""
    return all(check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]})))
