"""Routes behind the authentication that the MCP endpoint has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastmcp.server.auth.middleware import RequireAuthMiddleware
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, request_response
from starlette.types import ASGIApp

Handler = Callable[[Request], Awaitable[Response]]


def guarded_route(path: str, handler: Handler, auth: Any, *, methods: Sequence[str] = ("GET",)) -> Route:
    """A route for those who have authenticated with the scopes that are required; for everybody, without `auth`.

    Who is not let in gets a 401, or a 403 if only a scope is missing.
    """
    if auth is None:
        return Route(path, handler, methods=methods)
    inner = request_response(handler)
    return Route(path, RequireAuthMiddleware(inner, auth.required_scopes, None, auth.challenge_scopes), methods=methods)


def guard_of(app: Starlette) -> Callable[[ASGIApp], ASGIApp]:
    """What refuses callers of the app's MCP endpoint, for something else: the answers are the same.

    Without authentication nobody is refused.
    """
    guards = (getattr(route, "endpoint", None) for route in app.routes)
    of_mcp = next((guard for guard in guards if isinstance(guard, RequireAuthMiddleware)), None)
    if of_mcp is None:
        return lambda inner: inner
    options = of_mcp.required_scopes, of_mcp.resource_metadata_url, of_mcp.challenge_scopes
    return lambda inner: RequireAuthMiddleware(inner, *options)
