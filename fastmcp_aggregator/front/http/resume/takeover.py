"""Session takeover: a client of up to 2025-11-25 goes on with its session at a replica that does not know it.

Theory. What the handshake said, and the few requests that change a session, are kept in what replicas share
(`kept_sessions.py`), under the session's id and for who has opened it. A replica that gets a request of a session that
it does not know looks there, and if the session is the caller's, opens it: it says to the SDK's transport what the
client has said to the other one, under the same id. The request then goes on as if it had always been here.

A client that ends its session ends it at all replicas that have opened it; at one that cannot hear of it, when it
has not been used for long. What a replica alone has is lost: calls in flight and the events to come back for, and
instances of servers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.auth.claims import principal_in
from fastmcp_aggregator.front.http.resume.event_store import RESUMABLE_REQUEST, SESSION_ID, header, is_of_answer
from fastmcp_aggregator.front.http.resume.kept_sessions import CHANGES, KeptSessions, SessionState
from fastmcp_aggregator.front.http.resume.resumption import LAST_EVENT_ID
from fastmcp_aggregator.library_internals import (
    SessionEndpoint,
    end_session,
    has_session,
    open_session,
    requestor_of,
    route_path,
    session_of,
)
from fastmcp_aggregator.protocol.methods import SET_LEVEL, SUBSCRIBE
from fastmcp_aggregator.replicas.changes import Changes

logger = logging.getLogger(__name__)

Opening = Callable[[Scope], AbstractContextManager[Scope | None]]
"""Gives the scope in which a session may be opened, for the scope of a request; None: there is no room for one."""
_SESSION_ID = re.compile("[0-9a-f]{32}")
_LARGEST_MESSAGE = 64 * 1024
_TIMEOUT = 2.0
"""Seconds that a request waits until its session is subscribed again to what it was."""
_OWN_HEADERS = (b"host", b"authorization", b"x-api-key", b"user-agent")
"""Headers of the client that our own requests carry."""
_MARKS = tuple(f'"{method}"'.encode() for method in CHANGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverOptions:
    """The options of the layer of one MCP endpoint."""

    path: str
    endpoint: SessionEndpoint
    kept: KeptSessions
    group_id: str
    scopes: Sequence[str] | None
    """Scopes that a request must have authenticated with; None: everybody is let in."""
    on_denied: Callable[[Principal, str, str, str], None]
    opening: Opening = field(repr=False)
    changes: Changes
    """Tells the other replicas of sessions that have ended, and is told of theirs."""


class SessionTakeover:
    """The ASGI layer before the transport of streamable HTTP."""

    def __init__(self, app: ASGIApp, options: TakeoverOptions) -> None:
        self._app = app
        self._options = options
        self._kept = options.kept
        self._ending: set[asyncio.Task[None]] = set()
        options.changes.end_sessions_with(options.group_id, self._end)
        self._under_way: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Takeovers by session and caller: one who may not have the session keeps nobody else from it."""
        self._over: set[str] = set()
        """Sessions that have ended while they were being opened here."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or route_path(scope) != self._options.path or not self._is_let_in(scope):
            await self._app(scope, receive, send)
            return
        value = header(scope, SESSION_ID)
        session_id = None if value is None else value.decode("latin-1")
        if session_id is None:
            await (self._open if scope["method"] == "POST" else self._app)(scope, receive, send)
            return
        await self._take_over(session_id, scope)
        if scope["method"] == "POST":
            await self._change(session_id, scope, receive, send)
        else:
            await self._app(scope, receive, send if scope["method"] != "DELETE" else self._forgetting(session_id, send))

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request without a session on; what a handshake says is kept before it is answered."""
        first = await receive()
        params = _params_of(first, {"initialize"})

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                opened = next((value for name, value in message["headers"] if name.lower() == SESSION_ID), None)
                if opened is not None and params is not None:
                    await self._kept.keep(opened.decode("latin-1"), SessionState(requestor_of(scope), params[1]))
            await send(message)

        await self._app(scope, _again(first, receive), send if params is None else watched)

    async def _change(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request of a session on, and keep what it changes."""
        first = await receive()
        body = first.get("body", b"")
        is_change = len(body) <= _LARGEST_MESSAGE and any(mark in body for mark in _MARKS)
        found = _params_of(first, CHANGES) if is_change else None
        await self._app(scope, _again(first, receive), send)
        if found is not None:
            await self._kept.change(session_id, requestor_of(scope), *found)

    def _forgetting(self, session_id: str, send: Send) -> Send:
        """Sends the answer to a DELETE; a session that has ended is told to end everywhere, before its client knows."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                await self._kept.forget(session_id)
                self._options.changes.session_ended(self._options.group_id, session_id)
            await send(message)

        return watched

    def _end(self, session_id: str) -> None:
        """Its client has ended the session at another replica."""
        self._kept.ended(session_id)
        if any(session_id == session for session, _ in self._under_way):
            self._over.add(session_id)
        ending = asyncio.create_task(end_session(self._options.endpoint, session_id))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _take_over(self, session_id: str, scope: Scope) -> None:
        """Open a session that is unknown here, is kept, and is the caller's: once for all requests that come for it."""
        if not self._under_way and not self._is_unknown(session_id):
            return
        key = (session_id, repr(requestor_of(scope)))
        work = self._under_way.get(key)
        if work is None and not self._is_unknown(session_id):
            return
        event_id = header(scope, LAST_EVENT_ID)
        if event_id is not None and is_of_answer(event_id.decode("latin-1")):
            return  # the answer to a call of another replica, of which nothing is here
        if work is None:
            work = self._under_way[key] = asyncio.create_task(self._reopen(session_id, scope))
            work.add_done_callback(lambda _: self._opened(key))
        await asyncio.shield(work)

    def _opened(self, key: tuple[str, str]) -> None:
        """It was, or could not be."""
        self._under_way.pop(key, None)
        self._over.discard(key[0])

    async def _reopen(self, session_id: str, scope: Scope) -> None:
        RESUMABLE_REQUEST.set(None)  # the events of what is said here belong to no request of the client's
        state = await self._kept.read(session_id)
        principal = principal_in(scope)
        if state is None:
            return
        if state.owner != requestor_of(scope):
            reason = "the session belongs to another caller"
            self._options.on_denied(principal, self._options.group_id, scope["path"], reason)
            return
        with self._options.opening(scope) as opening:
            if opening is None:
                return
            said = _Said(opening, session_id)
            open_it = open_session(self._options.endpoint, session_id)
            await said.request(open_it, "initialize", state.handshake)
            transport = session_of(self._options.endpoint, session_id, scope)
            if transport is None:
                return
            await said.notification(transport.handle_request, "notifications/initialized")
        logger.info("took over a session of %s from another replica", principal.name)
        await self._kept.keep(session_id, state)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                await _restore(said, transport.handle_request, state)
        if session_id in self._over:  # while it was opened here
            await self._kept.forget(session_id)
            await end_session(self._options.endpoint, session_id)

    def _is_unknown(self, session_id: str) -> bool:
        """True if it looks like a session, and is none of this replica."""
        return not has_session(self._options.endpoint, session_id) and _SESSION_ID.fullmatch(session_id) is not None

    def _is_let_in(self, scope: Scope) -> bool:
        """True if FastMCP's `RequireAuthMiddleware`, which is further in, lets a request pass."""
        if self._options.scopes is None:
            return True
        is_known = isinstance(scope.get("user"), AuthenticatedUser)
        return is_known and set(self._options.scopes) <= set(getattr(scope.get("auth"), "scopes", ()))


async def _restore(said: _Said, handle: ASGIApp, state: SessionState) -> None:
    """Ask for what the client has asked for at the other replica. What is refused now is left out."""
    if state.level is not None:
        await said.request(handle, SET_LEVEL.name, {"level": state.level})
    for uri in state.subscriptions:
        await said.request(handle, SUBSCRIBE.name, {"uri": uri})


class _Said:
    """Says to a transport what a client has said to another one; the answers, which it has had, are left out."""

    def __init__(self, scope: Scope, session_id: str) -> None:
        own = [each for each in scope["headers"] if each[0] in _OWN_HEADERS]
        accepted = (b"accept", b"application/json, text/event-stream")
        self._headers = [*own, accepted, (b"content-type", b"application/json"), (SESSION_ID, session_id.encode())]
        self._scope = scope
        self._numbers = count(1)

    async def request(self, app: ASGIApp, method: str, params: Mapping[str, Any]) -> None:
        """Make a request and wait until it is answered."""
        request_id = f"taken-over-{next(self._numbers)}"
        await self._say(app, {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    async def notification(self, app: ASGIApp, method: str) -> None:
        await self._say(app, {"jsonrpc": "2.0", "method": method})

    async def _say(self, app: ASGIApp, message: Mapping[str, Any]) -> None:
        body = json.dumps(message).encode()
        scope = {**self._scope, "method": "POST", "headers": [*self._headers, (b"content-length", b"%d" % len(body))]}
        first = {"type": "http.request", "body": body, "more_body": False}
        await app(scope, _again(first, _never), _discard)


def _params_of(first: Message, methods: Sequence[str] | set[str]) -> tuple[str, dict[str, Any]] | None:
    """The method and the parameters of a request that is one of these, and came whole."""
    body = first.get("body", b"")
    if first["type"] != "http.request" or first.get("more_body") or len(body) > _LARGEST_MESSAGE:
        return None
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("method") not in methods:
        return None
    params = message.get("params")
    return (message["method"], params) if isinstance(params, dict) else None


def _again(first: Message, receive: Receive) -> Receive:
    """Receives a message that was received before, and then the others."""
    waiting = [first]

    async def replayed() -> Message:
        return waiting.pop() if waiting else await receive()

    return replayed


async def _never() -> Message:
    """The client of a request of ours does not leave."""
    never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    return await never


async def _discard(_: Message) -> None: ...
