"""The gate: how many HTTP requests run at once, how many wait, and how much their bodies may take together.

It stands behind authentication, so that only requests that are let in are counted. One that is turned away costs
nothing: its body is not read. One that is let in takes its turn when its body has come. Streams that only listen are
not counted once they are open.

A request that waits for its turn at a server, or for its client's answer to a question, does not count among those
that run but among those that wait: otherwise a server that hangs, or a person who thinks, would keep all from running.
What a client says in its session besides requests (answers, notifications) needs no turn, for requests wait for it; and
it goes through while the server ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.concurrency.limiter import ConcurrencyLimiter, released_while_waiting
from fastmcp_aggregator.front.http.bodies import Body, body_size

IS_ENDING = "fastmcp_aggregator.is_ending"
"""Where a request's scope says whether the server is to end."""
RETRY_AFTER = "5"
"""Seconds after which a client that was turned away may try again."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What the gate lets through: requests, bytes, and the seconds that a body may take to come, and then a turn."""

    running: int
    waiting: int
    body_bytes: int
    wait_bound: float = 60.0


class Places:
    """The requests that run and wait, as one count for all gates of a hub."""

    def __init__(self, limits: GateLimits) -> None:
        self.turns = ConcurrencyLimiter(limits.running)
        self._limits = limits
        self._admitted = 0
        self._body_bytes = 0

    def has_room_for(self, size: int) -> bool:
        """Whether one more request may come, with a body of so many bytes."""
        fits = self._body_bytes + size <= self._limits.body_bytes
        return fits and self._admitted < self._limits.running + self._limits.waiting

    def counts(self) -> tuple[int, int]:
        """How many requests run, and how many wait."""
        running = min(self._admitted, self._limits.running)
        return running, self._admitted - running

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """A place among those that run or wait."""
        self._admitted += 1
        self._body_bytes += size
        try:
            yield
        finally:
            self._admitted -= 1
            self._body_bytes -= size


class Gate:
    """An ASGI app around another, which answers 503 to what is too much."""

    def __init__(self, app: ASGIApp, limits: GateLimits, *, has_auth: bool, places: Places | None = None) -> None:
        """`places` are those that several gates have together; without them, this one has its own."""
        self._app = app
        self._limits = limits
        self._has_auth = has_auth
        self._places = places or Places(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "GET" or not self._is_let_in(scope):
            await self._app(scope, receive, send)
        elif not self._places.has_room_for(body_size(scope)):
            await turn_away(scope, receive, send, "too many requests")
        else:
            await self._admit(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = Body(receive)
        with ExitStack() as stack:
            stack.enter_context(self._places.taken(body_size(scope)))
            try:
                async with asyncio.timeout(self._limits.wait_bound):
                    await body.read()
            except TimeoutError:
                await give_up(scope, receive, send)
                return
            except ClientDisconnect:
                return
            if only_listens(scope):
                stack.close()
            elif is_of_session(scope) and not body.may_be_request:
                pass
            elif scope.get(IS_ENDING):
                await turn_away(scope, receive, send, "the server is ending")
                return
            elif not await stack.enter_context(self._turn()).comes_within(self._limits.wait_bound):
                await turn_away(scope, receive, send, "the request waited too long for its turn")
                return
            await self._app(scope, body.receive, send)

    def _is_let_in(self, scope: Scope) -> bool:
        """Whether authentication, where there is any, has let the request in; if not, the app will refuse it."""
        return not self._has_auth or bool(getattr(scope.get("user"), "is_authenticated", False))

    @contextmanager
    def _turn(self) -> Iterator[_Turn]:
        """A turn to run, which is still to come."""
        turn = _Turn(self._places.turns)
        before = released_while_waiting.set(turn.aside)
        try:
            yield turn
        finally:
            released_while_waiting.reset(before)
            turn.end()


class _Turn:
    """One request's turn to run, which others have while it waits for something else."""

    def __init__(self, turns: ConcurrencyLimiter) -> None:
        self._turns = turns
        self._is_had = False
        self._is_over = False

    async def comes_within(self, seconds: float) -> bool:
        """Wait for it; whether it has come in time."""
        if not self._turns.acquire_nowait():
            try:
                async with asyncio.timeout(seconds):
                    await self._turns.acquire()
            except TimeoutError:
                return False
        self._is_had = True
        return True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While the request waits for something else. It may do several things at once, some of which go on."""
        self._give_back()
        try:
            yield
        finally:
            if not self._is_had and not self._is_over:
                self._turns.reacquire()
                self._is_had = True

    def end(self) -> None:
        """The request is answered, or nobody waits for the answer any more."""
        self._is_over = True
        self._give_back()

    def _give_back(self) -> None:
        if self._is_had:
            self._is_had = False
            self._turns.release()


def only_listens(scope: Scope) -> bool:
    """Whether a request opens a stream that never finishes by itself: legacy clients GET it, modern ones ask for it."""
    return scope["method"] == "GET" or (
        (b"mcp-method", b"subscriptions/listen") in scope["headers"] and _is_modern(scope)
    )


def is_of_session(scope: Scope) -> bool:
    """Whether a request says that it belongs to a session: a header does over streamable HTTP, the address over SSE."""
    return any(name == b"mcp-session-id" for name, _ in scope["headers"]) or b"session_id=" in scope["query_string"]


def _is_modern(scope: Scope) -> bool:
    """Whether the SDK takes a request for one of 2026-07-28 or later, and so holds its headers against its body."""
    version = next((value for name, value in scope["headers"] if name == b"mcp-protocol-version"), None)
    return version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS


async def turn_away(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    """503, with the time to wait."""
    await PlainTextResponse(reason, 503, {"Retry-After": RETRY_AFTER})(scope, receive, send)


async def give_up(scope: Scope, receive: Receive, send: Send) -> None:
    """408, to a client that does not send the body it has announced."""
    await PlainTextResponse("the body did not come", 408, {"Connection": "close"})(scope, receive, send)
