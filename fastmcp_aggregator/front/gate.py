"""The gate: how many HTTP requests run at once, how many wait, and how much their bodies may take together.

It stands behind authentication, so that only requests that are let in are counted, and before the body is read, so
that one that is turned away costs nothing. Streams that only listen are not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

RETRY_AFTER = "5"
"""Seconds after which a client that was turned away may try again."""
_UNKNOWN_BODY = 4 * 1024 * 1024
"""Bytes that a body without a Content-Length is taken for: what the SDK reads of one, at most."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What the gate lets through: requests, bytes, and the seconds that a request waits for its turn."""

    running: int
    waiting: int
    body_bytes: int
    wait_bound: float = 60.0


class Gate:
    """An ASGI app around another, which answers 503 to what is too much."""

    def __init__(self, app: ASGIApp, limits: GateLimits, *, has_auth: bool) -> None:
        self._app = app
        self._limits = limits
        self._has_auth = has_auth
        self._turns = asyncio.Semaphore(limits.running)
        self._admitted = 0
        self._body_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or only_listens(scope) or not self._is_let_in(scope):
            await self._app(scope, receive, send)
            return
        size = body_size(scope)
        if not self._has_place(size):
            await turn_away(scope, receive, send, "too many requests")
            return
        async with self._place(size) as has_turn:
            if has_turn:
                await self._app(scope, receive, send)
            else:
                await turn_away(scope, receive, send, "the request waited too long for its turn")

    def _is_let_in(self, scope: Scope) -> bool:
        """Whether authentication, where there is any, has let the request in; if not, the app will refuse it."""
        return not self._has_auth or bool(getattr(scope.get("user"), "is_authenticated", False))

    def _has_place(self, size: int) -> bool:
        fits = self._body_bytes + size <= self._limits.body_bytes
        return fits and self._admitted < self._limits.running + self._limits.waiting

    @asynccontextmanager
    async def _place(self, size: int) -> AsyncIterator[bool]:
        """A place among those that run or wait; yields whether its turn has come in time."""
        self._admitted += 1
        self._body_bytes += size
        has_turn = False
        try:
            has_turn = await self._wait_for_turn()
            yield has_turn
        finally:
            if has_turn:
                self._turns.release()
            self._admitted -= 1
            self._body_bytes -= size

    async def _wait_for_turn(self) -> bool:
        try:
            return await asyncio.wait_for(self._turns.acquire(), self._limits.wait_bound)
        except TimeoutError:
            return False


def only_listens(scope: Scope) -> bool:
    """Whether a request opens a stream that never finishes by itself: legacy clients GET it, modern ones ask for it."""
    return scope["method"] == "GET" or (b"mcp-method", b"subscriptions/listen") in scope["headers"]


def body_size(scope: Scope) -> int:
    """Bytes of the body, as far as the request says."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length) if length.isdigit() else _UNKNOWN_BODY


async def turn_away(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    """503, with the time to wait."""
    await PlainTextResponse(reason, 503, {"Retry-After": RETRY_AFTER})(scope, receive, send)
