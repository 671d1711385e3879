"""Routes behind the authentication that the MCP endpoint has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastmcp.server.auth.middleware import RequireAuthMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, request_response

Handler = Callable[[Request], Awaitable[Response]]


def guarded_route(path: str, handler: Handler, auth: Any, *, methods: Sequence[str] = ("GET",)) -> Route:
    """A route for those who have authenticated with the scopes that are required; for everybody, without `auth`.

    Who is not let in gets a 401, or a 403 if only a scope is missing.
    """
    if auth is None:
        return Route(path, handler, methods=methods)
    inner = request_response(handler)
    return Route(path, RequireAuthMiddleware(inner, auth.required_scopes, None, auth.challenge_scopes), methods=methods)
