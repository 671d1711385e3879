"""The drain: lets requests in flight finish when the HTTP server is to end, and turns new ones away.

Streams that only listen (the GET stream of a legacy client, a modern `subscriptions/listen`) never finish by
themselves, so they are not counted; they are ended afterwards.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.front.in_flight import InFlight

_RETRY_AFTER = "5"
"""Seconds after which a client may try again; by then another instance serves, or this one is gone."""


class Drain:
    """An ASGI app around another, which counts the requests that are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.in_flight = InFlight()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _only_listens(scope):
            await self._app(scope, receive, send)
        elif self.in_flight.is_closing:
            refusal = PlainTextResponse("the server is ending", 503, {"Retry-After": _RETRY_AFTER})
            await refusal(scope, receive, send)
        else:
            with self.in_flight.one():
                await self._app(scope, receive, send)


def _only_listens(scope: Scope) -> bool:
    headers: list[tuple[bytes, Any]] = scope["headers"]
    return scope["method"] == "GET" or (b"mcp-method", b"subscriptions/listen") in headers
