"""The gate: how many HTTP requests run at once, how many wait, and how much their bodies may take together.

It stands behind authentication, so that only requests that are let in are counted, and each for who has sent it: no
principal (without authentication: no address) can take what others need; see `fair_share.py`. One that is turned away
costs nothing: its body is not read. One that is let in takes its turn when its body has come; what has come of it is
counted, not what was announced. Streams that only listen are not counted once they are open. A GET is never counted: it
opens a stream, or is answered at once.

What a request is, it tells by its route and its content (`front/http/endpoints.py`).

A request that waits for its turn at a server, or for its client's answer to a question, does not count among those
that run but among those that wait: otherwise a server that hangs, or a person who thinks, would keep all from running.
What a client says in its session besides requests (answers, notifications) needs no turn, for requests wait for it; and
it goes through while the server ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.auth.claims import principal_of
from fastmcp_aggregator.concurrency.fair_share import FairLimiter, FairShare, Holder
from fastmcp_aggregator.concurrency.limiter import released_while_waiting
from fastmcp_aggregator.front.http.bodies import Body, NoBody, NoRoom
from fastmcp_aggregator.front.http.endpoints import Endpoints, may_be_request
from fastmcp_aggregator.front.wire.parts import PARTS_LIMIT, has_too_many_parts, too_many_parts
from fastmcp_aggregator.message_streams import encode

IS_ENDING = "fastmcp_aggregator.is_ending"
"""Where a request's scope says whether the server is to end."""
RETRY_AFTER = "5"
"""Seconds after which a client that was turned away may try again."""


ON_LISTENING = "fastmcp_aggregator.on_listening"
"""Where a request's scope has what to call when it turns out to open a stream that only listens."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """What the gate lets through: requests, bytes, and the seconds that a body may take to come, and then a turn.

    `body_grace` are those in which nothing of a body has to come.
    """

    running: int
    waiting: int
    body_bytes: int
    wait_bound: float = 60.0
    body_grace: float = 10.0


class AdmissionQueue:
    """The requests that run and wait, as one count for all gates of a hub."""

    def __init__(self, limits: GateLimits) -> None:
        self.turns = FairLimiter(limits.running)
        self._admitted = FairShare(limits.running + limits.waiting)
        self._body_bytes = FairShare(limits.body_bytes)

    def counts(self) -> tuple[int, int]:
        """How many requests run, and how many wait."""
        running = self.turns.taken
        return running, self._admitted.taken - running

    @contextmanager
    def one(self, holder: Holder) -> Iterator[Callable[[int], bool] | None]:
        """A place among those that run or wait, and how to take bytes for its body; None if there is no place."""
        if not self._admitted.try_acquire(holder):
            yield None
            return
        size = 0

        def has_room(more: int) -> bool:
            nonlocal size
            if not self._body_bytes.try_acquire(holder, more):
                return False
            size += more
            return True

        try:
            yield has_room
        finally:
            self._admitted.release(holder)
            if size:
                self._body_bytes.release(holder, size)


class Gate:
    """An ASGI app around another, which answers 503 to what is too much."""

    def __init__(
        self,
        app: ASGIApp,
        limits: GateLimits,
        endpoints: Endpoints,
        *,
        has_auth: bool,
        places: AdmissionQueue | None = None,
    ) -> None:
        """`places` are those that several gates have together; without them, this one has its own."""
        self._app = app
        self._limits = limits
        self._endpoints = endpoints
        self._has_auth = has_auth
        self._places = places or AdmissionQueue(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "GET":
            await self._app(scope, NoBody(receive).receive, send)
        elif scope.get(IS_ENDING) and not self._endpoints.is_of_session(scope):
            await turn_away(scope, receive, send, "the server is ending")
        elif not self._is_let_in(scope):
            await self._app(scope, receive, send)
        else:
            await self._admit(scope, receive, send)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, holder = Body(receive), _holder(scope)
        with ExitStack() as stack:
            has_room = stack.enter_context(self._places.one(holder))
            if has_room is None:
                await turn_away(scope, receive, send, "too many requests")
                return
            if not await self._read(body, has_room, scope, receive, send):
                return
            if self._endpoints.is_of_session(scope) and not may_be_request(body.content):
                pass
            elif scope.get(IS_ENDING):
                await turn_away(scope, receive, send, "the server is ending")
                return
            elif self._endpoints.only_listens(scope, body.content):
                stack.close()
                scope.get(ON_LISTENING, _ignore)()
            elif not await stack.enter_context(self._turn(holder)).comes_within(self._limits.wait_bound):
                await turn_away(scope, receive, send, "the request waited too long for its turn")
                return
            await self._app(scope, body.receive, send)

    async def _read(
        self, body: Body, has_room: Callable[[int], bool], scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Wait for a request's body; whether it is to be served. If not, the request is answered."""
        try:
            await body.read(has_room, bound=self._limits.wait_bound, grace=self._limits.body_grace)
        except TimeoutError:
            await give_up(scope, receive, send)
        except NoRoom:
            await turn_away(scope, receive, send, "the bodies of requests take too much memory")
        except ClientDisconnect:
            return False
        else:
            content = body.content
            if len(content) <= PARTS_LIMIT or not has_too_many_parts(content):
                return True
            await refuse_parts(content, scope, receive, send)
        return False

    def _is_let_in(self, scope: Scope) -> bool:
        """Whether authentication, where there is any, has let the request in; if not, the app will refuse it."""
        return not self._has_auth or bool(getattr(scope.get("user"), "is_authenticated", False))

    @contextmanager
    def _turn(self, holder: Holder) -> Iterator[_Turn]:
        """A turn to run, which is still to come."""
        turn = _Turn(self._places.turns, holder)
        before = released_while_waiting.set(turn.aside)
        try:
            yield turn
        finally:
            released_while_waiting.reset(before)
            turn.end()


class _Turn:
    """One request's turn to run, which others have while it waits for something else."""

    def __init__(self, turns: FairLimiter, holder: Holder) -> None:
        self._turns = turns
        self._holder = holder
        self._is_had = False
        self._is_over = False

    async def comes_within(self, seconds: float) -> bool:
        """Wait for it; whether it has come in time."""
        if not self._turns.acquire_nowait(self._holder):
            try:
                async with asyncio.timeout(seconds):
                    await self._turns.acquire(self._holder)
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
                self._turns.reacquire(self._holder)
                self._is_had = True

    def end(self) -> None:
        """The request is answered, or nobody waits for the answer any more."""
        self._is_over = True
        self._give_back()

    def _give_back(self) -> None:
        if self._is_had:
            self._is_had = False
            self._turns.release(self._holder)


def _holder(scope: Scope) -> Holder:
    """Whom a request is counted for: who has authenticated, with whatever key, or else the client's address."""
    token = getattr(scope.get("user"), "access_token", None)
    if token is not None:
        return replace(principal_of(token), groups=None)
    client = scope.get("client")
    return client[0] if client else ""


def _ignore() -> None: ...


async def turn_away(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    """503, with the time to wait."""
    await PlainTextResponse(reason, 503, {"Retry-After": RETRY_AFTER})(scope, receive, send)


async def give_up(scope: Scope, receive: Receive, send: Send) -> None:
    """408, to a client that does not send the body it has announced, or too slowly."""
    await PlainTextResponse("the body did not come", 408, {"Connection": "close"})(scope, receive, send)


async def refuse_parts(content: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    """413, to a client whose body would cost too much to parse."""
    await Response(encode(too_many_parts(content)), 413, media_type="application/json")(scope, receive, send)
