"""Parts of FastMCP, the SDK's server and Starlette that are used though they are private to them: here alone.

Each gives what its name says. `libraries.py` looks when the program starts whether they are all there. They are C
functions, where that is possible: they are on the way of every call.
"""

from __future__ import annotations

import asyncio
import math
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext, authorization_context
from mcp.shared._context_streams import create_context_streams
from starlette._utils import get_route_path
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fastmcp import FastMCP
    from fastmcp.server.auth import AuthProvider
    from fastmcp.server.dependencies import FastMCPRequestContext
    from fastmcp.server.providers import LocalProvider
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server
    from mcp.server.session import ServerSession
    from mcp.server.streamable_http import StreamableHTTPServerTransport
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.shared.dispatcher import DispatchContext
    from pydantic import AnyHttpUrl
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["create_context_streams"]  # what others take from here as it is

connection_of: Callable[[ServerSession], Connection] = attrgetter("_connection")
request_channel_of: Callable[[ServerSession], DispatchContext[Any]] = attrgetter("_request_outbound")
"""The channel on which the request is answered that a session was made for."""
sdk_server_of: Callable[[Any], Server[Any]] = attrgetter("_mcp_server")
sdk_request_of: Callable[[FastMCPRequestContext], ServerRequestContext[Any, Any]] = attrgetter("_srctx")
transforms_of: Callable[[FastMCP[Any]], Sequence[Any]] = attrgetter("_transforms")
"""The transforms of an app, without those of its providers."""
components_of: Callable[[LocalProvider], Mapping[str, Any]] = attrgetter("_components")
make_span = OpenTelemetryMiddleware()
route_path = get_route_path
"""The path of a request within the app that serves it, which may be mounted."""


class SessionEndpoint(Protocol):
    """FastMCP's ASGI app of streamable HTTP, whose sessions are there while it runs."""

    session_manager: StreamableHTTPSessionManager | None


def route_of(app: Starlette, path: str) -> Route:
    """FastMCP's own, of an app's MCP endpoint."""
    return next(route for route in app.routes if isinstance(route, Route) and route.path == path)


def session_endpoint_of(app: Starlette, path: str) -> SessionEndpoint | None:
    """The app behind an app's MCP endpoint, and behind the authentication there, if it is that of streamable HTTP."""
    endpoint = route_of(app, path).endpoint
    inner: Any = getattr(endpoint, "app", endpoint)
    return inner if hasattr(inner, "session_manager") else None


def session_of(
    endpoint: SessionEndpoint, session_id: str, scope: Mapping[str, Any]
) -> StreamableHTTPServerTransport | None:
    """A session that is open, and was opened with the credentials of this request; else None."""
    manager = endpoint.session_manager
    transport = None if manager is None else manager._server_instances.get(session_id)
    if manager is None or transport is None or transport.is_terminated:
        return None
    if requestor_of(scope) != manager._session_owners.get(session_id):
        return None
    is_ending = transport.idle_scope is not None and transport.idle_scope.cancel_called
    return None if is_ending else transport


def is_session_of_another(endpoint: SessionEndpoint, session_id: str, scope: Mapping[str, Any]) -> bool:
    """True if a session exists, and was opened with other credentials than those of this request."""
    manager = endpoint.session_manager
    if manager is None or session_id not in manager._server_instances:
        return False
    return requestor_of(scope) != manager._session_owners.get(session_id)


def has_session(endpoint: SessionEndpoint, session_id: str) -> bool:
    """True if such a session exists, of any client."""
    manager = endpoint.session_manager
    return manager is not None and session_id in manager._server_instances


async def end_session(endpoint: SessionEndpoint, session_id: str) -> None:
    """End a session, if it is there, as its client would."""
    manager = endpoint.session_manager
    transport = None if manager is None else manager._server_instances.get(session_id)
    if transport is not None and not transport.is_terminated:
        await transport.terminate()


def open_session(endpoint: SessionEndpoint, session_id: str) -> ASGIApp:
    """The ASGI app for a request that opens a session under a given id; it sends nothing if there is no room."""

    async def opening(scope: Scope, receive: Receive, send: Send) -> None:
        manager = endpoint.session_manager
        if manager is None or manager.stateless:
            return
        async with manager._session_creation_lock:
            transport = None if has_session(endpoint, session_id) else manager._admit_session(requestor_of(scope))
            if transport is None:
                return
            made = transport.mcp_session_id or ""
            transport.mcp_session_id = session_id
            manager._server_instances[session_id] = manager._server_instances.pop(made)
            if made in manager._session_owners:
                manager._session_owners[session_id] = manager._session_owners.pop(made)
        await manager._serve_opening_request(transport, scope, receive, send)

    return opening


def requestor_of(scope: Mapping[str, Any]) -> AuthorizationContext | None:
    """The credentials of a request, as sessions are compared by; None without authentication."""
    user = scope.get("user")
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None


_FRESH = 1.0
"""Seconds for which the deadline of a session that is idle for long counts as set just now: to set it moves a timer,
which costs each request too much.
"""
_LONG_IDLE = 60.0


class HeldSession:
    """Keeps a session from becoming idle until it is released, as a request that its transport serves does."""

    __slots__ = ("_loop", "_scope", "_stale_at", "_transport")

    def __init__(self, transport: StreamableHTTPServerTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._scope = transport.idle_scope
        self._stale_at = 0.0
        """Until when its deadline, which is left as it is, counts as set just now; 0: it is not left."""
        transport._requests_in_flight += 1
        timeout = transport._idle_timeout
        if self._scope is None or timeout is None:
            return
        if timeout >= _LONG_IDLE and (deadline := self._scope.deadline) < math.inf:
            stale_at = deadline - timeout + _FRESH
            if loop.time() < stale_at:
                self._stale_at = stale_at
                return
        self._scope.deadline = math.inf

    def release(self) -> None:
        transport = self._transport
        transport._requests_in_flight -= 1
        timeout = transport._idle_timeout
        if self._scope is None or timeout is None or transport._requests_in_flight:
            return
        now = self._loop.time()
        if now >= self._stale_at or self._scope.deadline == math.inf:  # which the transport sets
            self._scope.deadline = now + timeout


def resource_url_of(provider: AuthProvider, path: str | None = None) -> AnyHttpUrl | None:
    """The address of an MCP endpoint at `path` as its tokens name it (RFC 8707); None if our own is not known."""
    return provider._get_resource_url(path)
