"""The drain: lets requests in flight finish when the HTTP server is to end, and turns new ones away.

Streams that only listen (the GET stream of a legacy client, a modern `subscriptions/listen`) never finish by
themselves, so they are not counted; they are ended afterwards.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_RETRY_AFTER = "5"
"""Seconds after which a client may try again; by then another instance serves, or this one is gone."""


class Drain:
    """An ASGI app around another, which counts the requests that are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._in_flight = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _only_listens(scope):
            await self._app(scope, receive, send)
            return
        if self._closing:
            refusal = PlainTextResponse("the server is ending", 503, {"Retry-After": _RETRY_AFTER})
            await refusal(scope, receive, send)
            return
        self._in_flight += 1
        self._idle.clear()
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    async def close(self, bound: float) -> None:
        """Turn new requests away and wait for those in flight, at most `bound` seconds."""
        self._closing = True
        try:
            await asyncio.wait_for(self._idle.wait(), bound)
        except TimeoutError:
            return


def _only_listens(scope: Scope) -> bool:
    headers: list[tuple[bytes, Any]] = scope["headers"]
    return scope["method"] == "GET" or (b"mcp-method", b"subscriptions/listen") in headers
