"""The layers of authentication around the MCP endpoint, and routes behind the same authentication."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from fastmcp.server.auth.middleware import RequireAuthMiddleware
from fastmcp.server.http import HostOriginGuardMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.access.keys import KEY_PREFIX
from fastmcp_aggregator.access.loopback import network_of
from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.auth.claims import principal_in
from fastmcp_aggregator.concurrency.limiter import Holder
from fastmcp_aggregator.front.http.connection import whole_body
from fastmcp_aggregator.front.http.endpoints import head_of
from fastmcp_aggregator.front.http.gate import CONNECTION, is_look
from fastmcp_aggregator.front.http.resume.event_store import SESSION_ID
from fastmcp_aggregator.library_internals import SessionEndpoint, is_session_of_another, route_path
from fastmcp_aggregator.policies.audit import NO_CREDENTIALS
from fastmcp_aggregator.policies.refused_callers import RefusedCallers

Handler = Callable[[Request], Awaitable[Response]]
OnDenied = Callable[[Principal, str, str, str], None]
"""Called with the principal, the group, the path of the request, and why it was denied."""
OnRefused = Callable[[str, str, str], None]
"""Called with the address of the client, the path of the request, and why it was refused."""
_IS_ADDRESSED = "fastmcp_aggregator.is_addressed"
_CREDENTIALS = (b"authorization", b"x-api-key")
_OF_LOOKS = (200, 503)
"""Statuses of answers to looks; those with another one are refused."""
_MOST_HOSTS = 1000
_LONGEST_HOST = 255
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(:[0-9]*)?")
"""A name or an address, and a port (RFC 3986, 3.2.2)."""
_DESCRIPTION = re.compile(rb'error_description="[^"]*"')
_KEY_ID = re.compile(KEY_PREFIX.encode() + rb"([0-9a-f]{8})_")
NOT_FOUND = "Not Found: GET /groups lists the groups that you may use"
"""The answer to who has authenticated, of a group that is not there and of one that is others'."""
_NOT_ADDRESSED = {
    421: "Misdirected Request: the server does not go by this name; its operator can add it to `allowed_hosts`",
    403: "Forbidden Origin: the server's operator can add it to `cors_origins`",
}
_WHY_WRONG = (
    "this API key is not known here: it is mistyped, was revoked, or has expired; or the hub cannot use its keys file, "
    "which its log would say"
)
_WRONG_KEY = json.dumps({"error": "invalid_token", "error_description": _WHY_WRONG}).encode()
_WHAT_TO_SEND = "credentials are missing: send `X-API-Key: KEY`, or `Authorization: Bearer` with a key or a token"
_NOTHING_SENT = json.dumps({"error": "unauthorized", "error_description": _WHAT_TO_SEND}).encode()
_EXPOSED = ("mcp-session-id", "mcp-protocol-version", "retry-after", "www-authenticate")
"""Response headers that pages may read, besides those that they always may."""


def guarded_route(path: str, handler: Handler, auth: Any, *, methods: Sequence[str] = ("GET",)) -> Route:
    """A route for those who have authenticated with the scopes that are required; for everybody, without `auth`.

    Who is not let in gets a 401, or a 403 if only a scope is missing. What a GET is answered depends on who asks, so no
    cache may keep it: those between know nothing of `X-API-Key`.
    """

    async def not_kept(request: Request) -> Response:
        response = await handler(request)
        response.headers["Cache-Control"] = "no-store"
        return response

    answer = not_kept if "GET" in methods else handler
    if auth is None:
        return Route(path, answer, methods=methods)
    inner = request_response(answer)
    return Route(path, RequireAuthMiddleware(inner, auth.required_scopes, None, auth.challenge_scopes), methods=methods)


def without_head(route: Route) -> Route:
    """The same route without HEAD, which Starlette adds wherever there is GET: where a GET opens something."""
    route.methods = (route.methods or set()) - {"HEAD"}
    return route


def guard_of(app: Starlette) -> Callable[[ASGIApp], ASGIApp]:
    """The authentication of the app's MCP endpoint, for something else: the answers are the same.

    Without authentication it lets everybody in.
    """
    guards = (getattr(route, "endpoint", None) for route in app.routes)
    of_mcp = next((guard for guard in guards if isinstance(guard, RequireAuthMiddleware)), None)
    if of_mcp is None:
        return lambda inner: inner
    options = of_mcp.required_scopes, of_mcp.resource_metadata_url, of_mcp.challenge_scopes
    return lambda inner: RequireAuthMiddleware(inner, *options)


class HostGuard:
    """An ASGI layer that lets no request for another host in, and none of a web page of another origin.

    The check is FastMCP's, which lets pages of every port of this machine in, and all that pages ask for without an
    Origin: here only pages of this very port, and of the origins that are allowed. What it answers to who tells neither
    an Origin nor a page depends on the Host and on our own address alone, and on nothing that changes, and to work it
    out takes as long as a tenth of a call: so it is asked once for each Host.
    """

    def __init__(
        self,
        app: ASGIApp,
        options: Mapping[str, Any],
        origins: Sequence[str],
        on_failure: OnRefused,
        refused: RefusedCallers | None = None,
    ) -> None:
        """`options` are those of FastMCP's; `on_failure` is told of each request that is refused, and `refused` of its
        address, unless somebody else tells it.
        """
        self._app = app
        self._guard = HostOriginGuardMiddleware(self._pass_on, **options)
        self._is_any = "*" in origins
        self._allowed = frozenset(map(_origin, origins))
        self._on_failure = on_failure
        self._refused = refused
        self._known: set[tuple[bytes, tuple[Any, ...]]] = set()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_known = scope["type"] != "http" or _host_of(scope) in self._known
        return (self._app if is_known else self._check)(scope, receive, send)

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_told = False

        async def in_turn(message: Message) -> None:
            nonlocal is_told
            if message["type"] == "http.response.start" and _IS_ADDRESSED not in scope:
                if self._refused is not None:
                    await self._refused.refuse(network_of(_address(scope)), scope.get(CONNECTION))
                if text := _NOT_ADDRESSED.get(message["status"]):
                    is_told = True
                    await PlainTextResponse(text, message["status"])(scope, receive, send)
            if not is_told:
                await send(message)

        await self._guard(scope, receive, in_turn)
        if _IS_ADDRESSED not in scope:
            self._on_failure(_address(scope), scope["path"], _why_misdirected(scope))

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that FastMCP's check has let in. It takes what follows an address in brackets for a part of
        that.
        """
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1:  # RFC 9112, 3.2
            await PlainTextResponse("Bad Request: several Hosts", status_code=400)(scope, receive, send)
            return
        if not all(map(_HOST.fullmatch, hosts)):
            await PlainTextResponse("Misdirected Request", status_code=421)(scope, receive, send)
            return
        origins = [value for name, value in scope["headers"] if name == b"origin"]
        is_allowed = all(self._is_allowed(value.decode("latin-1"), scope) for value in origins)
        if not self._is_any and not (is_allowed if origins else _is_of_no_other_page(scope)):
            await PlainTextResponse("Forbidden Origin", status_code=403)(scope, receive, send)
            return
        scope[_IS_ADDRESSED] = True
        host = _host_of(scope)
        if host is not None and len(self._known) < _MOST_HOSTS:
            self._known.add(host)
        await self._app(scope, receive, send)

    def _is_allowed(self, origin: str, scope: Scope) -> bool:
        found = _origin(origin)
        if found is None:
            return False
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        return found in self._allowed or found == _origin(f"{scope.get('scheme', 'http')}://{host}")


def _why_misdirected(scope: Scope) -> str:
    told = {name: value for name, value in scope["headers"] if name in (b"host", b"origin", b"sec-fetch-site")}
    shown = [f"{name.decode().title()} {value[:_LONGEST_HOST].decode('latin-1')!r}" for name, value in told.items()]
    advice = ": see `allowed_hosts` and `cors_origins`" if b"origin" in told or b"sec-fetch-site" not in told else ""
    return f"{' and '.join(shown) or 'no Host'}{advice}"


def _host_of(scope: Scope) -> tuple[bytes, tuple[Any, ...]] | None:
    """The only Host of a request without an Origin, and the address at which it came."""
    fields = dict(scope["headers"])
    host = fields.get(b"host")
    has_repeated = len(fields) < len(scope["headers"])
    is_of_page = b"origin" in fields or b"sec-fetch-site" in fields
    if host is None or len(host) > _LONGEST_HOST or is_of_page or has_repeated:
        return None
    return host, tuple(scope.get("server") or ())


def _is_of_no_other_page(scope: Scope) -> bool:
    """True if no page of another origin has a browser ask, unless by leading there: for images, scripts and frames it
    tells no Origin, but that (Fetch Metadata).
    """
    told = dict(scope["headers"])
    is_of_another = told.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")
    return not is_of_another or told.get(b"sec-fetch-dest") == b"document"


def _origin(text: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None: it is no origin of the web."""
    try:
        parts = urlsplit(text)
        port = parsed_port if (parsed_port := parts.port) is not None else _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return None if port is None or not parts.hostname else (parts.scheme, parts.hostname, port)


def is_json(scope: Scope) -> bool:
    """True if a request says that its body is JSON: a web page of another origin cannot, without being asked first."""
    given = [value for name, value in scope["headers"] if name == b"content-type"]
    return len(given) == 1 and given[0].partition(b";")[0].strip().lower() == b"application/json"


async def json_body(request: Request) -> Any:
    """The document in the body of a request; None: it is not said to be JSON, is none, or is over the limit."""
    body = await whole_body(request)
    if body is None or not is_json(request.scope):
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


class Membership:
    """An ASGI layer around the app of a group, behind authentication: rejects who may not use the group.

    Who has not authenticated is rejected by the app itself.
    """

    def __init__(self, app: ASGIApp, group_id: str, path: str, on_denied: OnDenied, refused: RefusedCallers) -> None:
        """`path` is that of the group's MCP endpoint; what else it has is below."""
        self._app = app
        self._on_denied = on_denied
        self._group_id = group_id
        self._path = path
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and route_path(scope).startswith(self._path):
            principal = principal_in(scope)
            if is_known(scope) and not (principal.may_call and principal.may_use(self._group_id)):
                if principal.may_call:
                    reason, answer = "the caller may not use the group", PlainTextResponse(NOT_FOUND, 404)
                else:
                    reason = "the caller lacks the role `call`"
                    answer = PlainTextResponse("Forbidden: you lack the role `call`", 403)
                self._on_denied(principal, self._group_id, scope["path"], reason)
                await self._refused.refuse(principal.bare, scope.get(CONNECTION))
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Sessions:
    """An ASGI layer before the transport of streamable HTTP, which rejects who uses the session of somebody else: here
    that is told of.
    """

    def __init__(self, app: ASGIApp, endpoint: SessionEndpoint, group_id: str, on_denied: OnDenied) -> None:
        self._app = app
        self._endpoint = endpoint
        self._group_id = group_id
        self._on_denied = on_denied

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            session = head_of(scope).first.get(SESSION_ID)
            if session is not None and is_session_of_another(self._endpoint, session.decode("latin-1"), scope):
                reason = "the session belongs to another caller"
                self._on_denied(principal_in(scope), self._group_id, scope["path"], reason)
        return self._app(scope, receive, send)


def cors(origins: Sequence[str]) -> list[Middleware]:
    """The CORS middleware for these origins (`*`: any); empty without origins."""
    if not origins:
        return []
    layer = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=list(_EXPOSED),
    )
    return [layer]


class AuthenticationFailures:
    """ASGI middleware that reports each refusal of credentials (401, 403, 400): client address, path, reason. Of one
    address, many of those take turns, and of all else that is answered without credentials, for the gate counts none of
    it; but looks that are answered do not, which are cheap, and must not wait for what others of that address ask.

    What FastMCP tells who has sent a wrong API key is about tokens that a client gets by itself: here it is about keys.
    Who has sent nothing is told nothing by it: here, what to send.
    """

    def __init__(self, app: ASGIApp, on_failure: OnRefused, refused: RefusedCallers | None = None) -> None:
        self._app = app
        self._on_failure = on_failure
        self._refused = refused or RefusedCallers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body: bytes | None = None
        """The response body that replaces FastMCP's."""

        async def watched(message: Message) -> None:
            nonlocal body
            reason = None
            if message["type"] == "http.response.start":
                reason = _rejection_reason(scope, message)
                is_free = is_known(scope) or (is_look(scope) and message["status"] in _OF_LOOKS)
                if reason or not is_free:
                    await self._refused.refuse(_whose(scope), scope.get(CONNECTION))
            if reason:
                self._on_failure(_address(scope), scope["path"], reason)
                body = _body_of(message["status"], reason, scope)
                if body is not None:
                    message["headers"] = _headers_of(body, message["headers"])
            elif body is not None:
                message, body = {"type": "http.response.body", "body": body}, None
            await send(message)

        await self._app(scope, receive, watched if scope["type"] == "http" else send)


def _has_key(scope: Scope) -> bool:
    """True if the credentials of a request are, or are meant to be, an API key."""
    mark = KEY_PREFIX.encode()
    return any(
        name == b"x-api-key" or (name == b"authorization" and value.partition(b" ")[2].strip().startswith(mark))
        for name, value in scope["headers"]
    )


def _body_of(status: int, reason: str, scope: Scope) -> bytes | None:
    if status != 401:
        return None
    return _NOTHING_SENT if reason == NO_CREDENTIALS else _WRONG_KEY if _has_key(scope) else None


def _headers_of(body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of FastMCP's answer, for another body."""
    others = [(name, value) for name, value in headers if name not in (b"content-length", b"content-type")]
    if body is _WRONG_KEY:
        why = b'error_description="%s"' % _WHY_WRONG.encode()
        others = [(name, _DESCRIPTION.sub(why, value)) for name, value in others]
    return [*others, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]


def is_known(scope: Scope) -> bool:
    return bool(getattr(scope.get("user"), "is_authenticated", False))


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _whose(scope: Scope) -> Holder:
    """The holder of a refused request: its principal, or else its client's address."""
    return principal_in(scope).bare if is_known(scope) else network_of(_address(scope))


def _rejection_reason(scope: Scope, start: Message) -> str | None:
    """Why authentication has refused a request; None if it has not, or its credentials have ended since."""
    if start["status"] == 401 and not is_known(scope):
        return _why_unknown([value for name, value in scope["headers"] if name in _CREDENTIALS])
    if start["status"] == 403 and any(name == b"www-authenticate" for name, _ in start["headers"]):
        return "the token lacks a scope that is required"
    if start["status"] == 400 and any(name == b"www-authenticate" for name, _ in start["headers"]):
        return "there are two credentials that differ"
    return None


def _why_unknown(credentials: Sequence[bytes]) -> str:
    """Why these are nobody's. The id of an API key is not secret, and tells an operator which one is still in use."""
    for value in credentials:
        if found := _KEY_ID.match(value.rpartition(b" ")[2]):
            return f"the API key {found[1].decode()} is not valid"
    return "the credentials are not valid" if credentials else NO_CREDENTIALS
