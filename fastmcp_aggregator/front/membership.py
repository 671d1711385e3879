"""Who may use a group over HTTP: for everybody else it does not exist."""

from __future__ import annotations

from collections.abc import Callable

from starlette._utils import get_route_path
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.access.principals import principal_of
from fastmcp_aggregator.middleware.call import Principal

OnDenied = Callable[[Principal, str, str, str], None]
"""Told who was refused which group, the path of the request, and why."""


class Membership:
    """An ASGI app around that of a group, behind authentication. What is not let in, the app itself refuses."""

    def __init__(self, app: ASGIApp, group_id: str, path: str, on_denied: OnDenied) -> None:
        """`path` is that of the group's MCP endpoint; what else it has is below."""
        self._app = app
        self._on_denied = on_denied
        self._group_id = group_id
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and get_route_path(scope).startswith(self._path):
            user = scope.get("user")
            is_known = getattr(user, "is_authenticated", False)
            principal = principal_of(getattr(user, "access_token", None))
            if is_known and not principal.may_use(self._group_id):
                self._on_denied(principal, self._group_id, scope["path"], "the caller may not use the group")
                await PlainTextResponse("Not Found", status_code=404)(scope, receive, send)
                return
        await self._app(scope, receive, send)
