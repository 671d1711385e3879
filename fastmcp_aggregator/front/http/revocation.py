"""Revocation: requests are ended whose credentials are revoked, lose the group, or expire meanwhile.

Theory. Authentication looks at a request when it comes, but a stream may stay open for days, and a call for minutes. So
each request of an API key is looked at again when its key changes in the file: if the key is gone, or has lost the
group, the request is ended, whatever it is, and so is what outlives it (`Caller.while_let_in`). A token that runs out,
or a key at its date, ends the streams that only listen; a call that was let in before is still answered, if that takes
no longer than a call may be silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from mcp.server.auth.provider import AccessToken
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.auth.claims import access_token_of, principal_in
from fastmcp_aggregator.auth.verifiers import KeyToken
from fastmcp_aggregator.callers.caller import WHILE_LET_IN
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.front.http.boundary import EndableWork, sending_of
from fastmcp_aggregator.front.http.gate import ON_LISTENING
from fastmcp_aggregator.front.http.security import OnDenied
from fastmcp_aggregator.library_internals import route_path

_MARGIN = 1.0
"""Seconds that a token is accepted beyond its end, because that is compared in whole ones."""
# RFC 6750, section 3.1: also for a token that was revoked.
_INVALID = {
    "error": "invalid_token",
    "error_description": "the credentials were revoked before the answer",
}
_CHALLENGE = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
_REVOKED = "the key was revoked, or has lost the group"
_EXPIRED = "the credentials have expired, and the time that a call has beyond that is over"


class Revocation:
    """An ASGI layer around the app of a group, behind authentication."""

    def __init__(
        self, app: ASGIApp, group_id: str, path: str, on_denied: OnDenied, grace: float, timings: Timings
    ) -> None:
        """`path` is that of the group's MCP endpoint, and `on_denied` is called for each request that is ended.
        `grace` is the seconds after the end of their token that calls have.
        """
        self._grace = grace
        self._timings = timings
        self._app = app
        self._group_id = group_id
        self._path = path
        self._on_denied = on_denied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = access_token_of(scope)
        if scope["type"] != "http" or token is None:
            await self._app(scope, receive, send)
            return
        response, watched = sending_of(scope, send)
        with EndableWork() as answering:
            if isinstance(token, KeyToken):
                groups = [self._group_id] if route_path(scope).startswith(self._path) else None
                while_let_in = partial(_while_let_in, token, groups)
                with while_let_in(partial(self._end, scope, answering, _REVOKED)):
                    await self._until_expiry(token, answering, {**scope, WHILE_LET_IN: while_let_in}, receive, watched)
            else:
                await self._until_expiry(token, answering, scope, receive, watched)
        if answering.was_ended and not response.has_begun:
            await JSONResponse(_INVALID, 401, _CHALLENGE)(scope, receive, send)
        elif answering.was_ended and not response.is_complete:
            await send({"type": "http.response.body"})

    async def _until_expiry(
        self, token: AccessToken, answering: EndableWork, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if token.expires_at is None:
            await self._serve(answering, scope, receive, send)
            return
        with ExitStack() as stack:
            self._end_at(token.expires_at + self._grace, stack, partial(self._end, scope, answering, _EXPIRED))
            on_listening = self._ending_stream(scope, token.expires_at, stack, answering.end)
            await self._serve(answering, {**scope, ON_LISTENING: on_listening}, receive, send)

    async def _serve(self, answering: EndableWork, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET" and (on_listening := scope.get(ON_LISTENING)) is not None:
            on_listening()
        if not answering.was_ended:
            await self._app(scope, receive, send)

    def _end(self, scope: Scope, answering: EndableWork, reason: str) -> None:
        self._on_denied(principal_in(scope), self._group_id, scope["path"], reason)
        answering.end()

    def _end_at(self, moment: float, stack: ExitStack, end: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        timer: asyncio.Handle

        def look() -> None:
            nonlocal timer
            remaining = moment + _MARGIN - self._timings.wall_clock()
            if remaining <= 0:
                end()
            else:
                timer = loop.call_later(min(remaining, self._timings.expiry_look), look)

        def cancel() -> None:
            timer.cancel()

        timer = loop.call_soon(look)
        stack.callback(cancel)

    def _ending_stream(
        self, scope: Scope, expires_at: int, stack: ExitStack, end: Callable[[], None]
    ) -> Callable[[], None]:
        """A callback for a request that turns out to open a stream that only listens: it ends with its token."""
        outer: Callable[[], None] | None = scope.get(ON_LISTENING)

        def on_listening() -> None:
            self._end_at(expires_at, stack, end)
            if outer is not None:
                outer()

        return on_listening


def _while_let_in(
    token: KeyToken, groups: Iterable[str] | None, end: Callable[[], None]
) -> AbstractContextManager[None]:
    def look() -> None:
        if not token.lets_in(groups):
            end()

    look()
    return token.watched(look)
