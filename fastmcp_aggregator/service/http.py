"""The HTTP app of a service: MCP and the JSON API for those with the token or the key, `/health` for everyone."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import partial

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.service import json_api
from fastmcp_aggregator.service.app import Service

HEALTH = "/health"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def http_app(server: Service) -> Starlette:
    """The ASGI app. On a loopback address, requests of web pages from elsewhere are refused (DNS rebinding)."""
    settings = server.settings
    host = settings.host or ""

    async def health(_request: Request) -> Response:
        state = server.requests.lifecycle.state
        return JSONResponse({"status": state}, 200 if state == "ready" else 503)

    app = server.http_app(
        middleware=[Middleware(_Authenticated, token=settings.auth_token, key=settings.api_key)],
        host_origin_protection=host in _LOOPBACK,
        allowed_hosts=[host],
    )
    app.router.routes += [
        Route(HEALTH, health, methods=["GET"]),
        # For clients that know nothing newer. Both apps share one run of the server.
        *server.http_app(transport="sse", path="/mcp/sse").routes,
        Route("/mcp/{method:path}", partial(json_api.answer, server), methods=["POST"]),
    ]
    return app


class _Authenticated:
    def __init__(self, app: ASGIApp, *, token: SecretStr | None, key: SecretStr | None) -> None:
        self._app = app
        self._accepted: Mapping[str, bytes] = {
            name: prefix + secret.get_secret_value().encode()
            for name, prefix, secret in (("authorization", b"Bearer ", token), ("x-api-key", b"", key))
            if secret is not None
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == HEALTH or self._is_let_in(Headers(scope=scope)):
            await self._app(scope, receive, send)
        else:
            refusal = JSONResponse({"error": "unauthorized"}, 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)

    def _is_let_in(self, headers: Headers) -> bool:
        # Compared in constant time, so that how long it takes tells nothing of the secret.
        given = {name: headers.get(name, "").encode() for name in self._accepted}
        return any(hmac.compare_digest(given[name], secret) for name, secret in self._accepted.items())
