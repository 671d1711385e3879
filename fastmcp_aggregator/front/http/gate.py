"""The gate: admission control of HTTP requests, by how many run, how many wait, and the bytes of their bodies; and of
the streams that only listen, and of sessions.

It stands behind authentication, so that only requests that are let in are counted, and each for who has sent it: no
principal (without authentication: no address) can take what others need; see `concurrency/limiter.py`. A rejected one
costs nothing: its body is not read. One that is let in takes its turn when its body has come; what has come of it is
counted, not what was announced. Streams that only listen have slots of their own, and none among those that run. A GET
opens a stream, or is answered at once.

Who takes much of the event loop's time pauses, and so leaves most of it to others. A caller owes the time that its
requests have taken, and a quarter of a second of it is forgiven in each second. A request begins when its caller owes
hardly anything, and borrows what that caller's requests take on average: so those that wait begin one after the other.
Who costs little never pauses, and nobody does while no other caller was there for a minute. Nothing is queued for it:
who pauses has its slot, which bounds how many do, and the bytes of its body, of which nothing is made meanwhile.

What a request is, it tells by its route and its content (`front/http/endpoints.py`).

A request that waits for its turn at a server, or for its client's answer to a question, does not count among those
that run but among those that wait: otherwise a server that hangs, or a person who thinks, would keep all from running.
What a client says in its session besides requests (answers, notifications) needs no turn, for requests wait for it; and
it goes through while the server ends. Of one session it is read one by one, as the session takes it: what waits are
bytes, which are counted, and not what they are decoded to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from time import monotonic, perf_counter, thread_time
from typing import Any
from weakref import WeakValueDictionary

from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCError, RequestId
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.access.loopback import network_of
from fastmcp_aggregator.auth.claims import access_token_of, principal_of
from fastmcp_aggregator.callers.caller import HOLDER, SESSION_SLOT
from fastmcp_aggregator.concurrency.limiter import FairLimiter, FairShare, Holder, Usage
from fastmcp_aggregator.front.http.connection import BODY, HAS_BODY, Body, NoBody, NoRoom, TooManyParts
from fastmcp_aggregator.front.http.endpoints import Endpoints, RequestKind
from fastmcp_aggregator.front.wire.errors import id_in_use, too_many_parts
from fastmcp_aggregator.library_internals import route_path
from fastmcp_aggregator.message_streams import encode
from fastmcp_aggregator.policies.refused_callers import RefusedCallers
from fastmcp_aggregator.protocol.parts import PARTS_LIMIT, count_parts

IS_ENDING = "fastmcp_aggregator.is_ending"
"""The key of a request's scope for whether the server is to end."""
IS_LEAVING = "fastmcp_aggregator.is_leaving"
"""The key for whether the server is going to end: everything is served still, but others should be asked."""
SHUTTING_DOWN = "server is shutting down"
RETRY_AFTER = "5"

CONNECTION = "fastmcp_aggregator.http_connection"
"""The key of a request's scope for its connection, which is told the holder of its answers."""
_REUSE_BOUND = 0.25
"""Seconds that a request waits until the one before with its id is over."""
_SHARE = 0.25
"""The share of the loop's time that the steps of a caller's requests may take while there are others. What goes with
them, such as credentials, connections and tasks of sessions, is not in it.
"""
_AT_ONCE = 0.003
"""Seconds of the loop's time that a caller may owe without a pause."""
_BESIDES = {RequestKind.OPENING: 0.002, RequestKind.MESSAGE: 0.001}
"""Seconds of the loop's time that tasks of the SDK take: for a session, from its opening to its end, or a message."""
_SIGNS_OF_LIFE = ("/health", "/ready")
"""Paths that are asked for by who would end the program if they were answered late."""
_OPENING_BYTES = 64 * 1024
"""The longest body that opens a session: the session keeps the client's description of itself."""
_SURE = 0.25
"""Seconds that one request is charged for in any case; of more, what the processor has worked meanwhile: a machine that
stands still is not the request's doing.
"""
_LONG = 4096
"""Bytes of a body, above which its values are counted."""
_PART_COST = 6e-7
"""Seconds of the loop's time that a value in a body takes at least, whoever parses it: most tasks of a session do."""
_LOOK_EVERY = 0.01
"""Seconds after which it is looked again how much the processor has worked."""
_OTHERS_LAST = 60.0
"""Seconds after which a caller from which nothing comes counts no longer as being there."""
_MOST_CALLERS = 1000
"""Callers that are known before those are forgotten that owe nothing."""
_RECENT = 0.2
"""The part that the latest request has in the average."""
ON_LISTENING = "fastmcp_aggregator.on_listening"
"""The key of a request's scope for what to call when it turns out to open a stream that only listens."""


@dataclass(frozen=True, slots=True)
class GateLimits:
    """The limits of the gate: requests, bytes, sessions and as many streams that only listen, and the seconds that a
    body may take to come, and then a turn. `body_grace` are those in which nothing of a body has to come. Beside it,
    connections, and bytes that clients do not read.
    """

    running: int
    waiting: int
    body_bytes: int
    sessions: int = 1000
    unread_bytes: int = 100 * 1024**2
    connections: int = 3000
    wait_bound: float = 60.0
    body_grace: float = 10.0


class _Account:
    """The debt of one caller."""

    __slots__ = ("as_of", "average", "owed")

    def __init__(self, now: float) -> None:
        self.owed = 0.0
        """Seconds of the loop's time, then."""
        self.as_of = now
        self.average = 0.0
        """Seconds of it that a request takes."""

    def pay(self, now: float) -> float:
        self.owed = max(0.0, self.owed - (now - self.as_of) * _SHARE)
        self.as_of = now
        return self.owed


class Pacer:
    """Shares the time of the event loop: what each caller owes of it, and who was there lately."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.accounts: dict[Holder, _Account] = {}
        self._latest: Holder = self
        self._latest_at = -_OTHERS_LAST
        self.shared_until = 0.0
        """The time until which there is more than one caller."""
        self.worked = 0.0
        """Seconds that the processor has worked; to ask for them takes longer than to ask for the time."""
        self._next_look = 0.0

    def request_of(self, holder: Holder) -> PacedRequest:
        """A request of a caller has come."""
        now = self.clock()
        if holder != self._latest:
            self.shared_until = self._latest_at + _OTHERS_LAST
            self._latest = holder
        self._latest_at = now
        if now >= self._next_look:
            self.worked, self._next_look = thread_time(), now + _LOOK_EVERY
        account = self.accounts.get(holder)
        if account is None:
            if len(self.accounts) >= _MOST_CALLERS:
                self.accounts = {each: owing for each, owing in self.accounts.items() if owing.pay(now)}
            account = self.accounts[holder] = _Account(now)
        return PacedRequest(self, account, now)


class PacedRequest:
    """One request, whose caller is charged for the time that it takes of the event loop."""

    __slots__ = ("account", "at_least", "borrowed", "came", "pacer", "worked")

    def __init__(self, pacer: Pacer, account: _Account, came: float) -> None:
        self.pacer = pacer
        self.account = account
        self.came = came
        """When it arrived: if no earlier than `Pacer.shared_until`, only its caller has requests."""
        self.worked = pacer.worked
        self.at_least = 0.0
        """Seconds that it is charged at least, for work in other tasks."""
        self.borrowed = 0.0

    def pause(self, besides: float = 0.0) -> float:
        """Seconds until it may begin; it borrows what it will take, and owes what is done for it `besides`."""
        if self.came >= self.pacer.shared_until:
            return 0.0
        now, account = self.pacer.clock(), self.account
        if now >= self.pacer.shared_until:
            return 0.0
        owed = account.pay(now)
        self.borrowed = account.average
        account.owed += account.average + besides
        return max(0.0, owed - _AT_ONCE) / _SHARE


class Charged:
    """A wrapper that awaits the work for a request, and charges each step of it."""

    __slots__ = ("_request", "_work")

    def __init__(self, request: PacedRequest, work: Coroutine[Any, Any, None]) -> None:
        self._request = request
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        work, spent = self._work, 0.0
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                began = perf_counter()
                try:
                    waits_for = work.send(value) if error is None else work.throw(error)
                except StopIteration:
                    return
                finally:
                    error = None
                    spent += perf_counter() - began
                try:
                    value = yield waits_for
                except BaseException as thrown:  # a cancellation, which is the work's
                    error = thrown
        finally:  # in this frame, for it is on the way of every call
            request, pacer = self._request, self._request.pacer
            account, spent = request.account, max(spent, request.at_least)
            if spent > _SURE:
                spent = min(spent, max(_SURE, thread_time() - request.worked))
            account.average += (spent - account.average) * _RECENT
            if request.came < pacer.shared_until and pacer.clock() < pacer.shared_until:
                account.owed = max(0.0, account.owed + spent - request.borrowed)


class AdmissionQueue:
    """The requests that run and wait, the streams and the sessions, as one count for all gates of a hub."""

    def __init__(self, limits: GateLimits) -> None:
        self.slots = FairLimiter(limits.running)
        self.streams = FairShare(limits.sessions)
        self.sessions = FairShare(limits.sessions)
        self.admitted = FairShare(limits.running + limits.waiting)
        """Slots of requests that run or wait."""
        self.body_bytes = FairShare(limits.body_bytes)
        self.unread = FairShare(limits.unread_bytes)
        self.connections = FairShare(limits.connections, has_reserve=False)
        self.refused = RefusedCallers()
        self.pacer = Pacer()

    def counts(self) -> tuple[int, int]:
        """The numbers of requests that run, and that wait."""
        running = self.slots.taken
        return running, self.admitted.taken - running

    def session_slot(self, holder: Holder) -> SessionSlot | None:
        """A slot for a session that is to be opened; None: there is none for this holder."""
        return SessionSlot(self.sessions, holder) if self.sessions.try_acquire(holder) else None

    def usage(self) -> dict[str, Usage]:
        """The usage of all limiters that callers share, by name."""
        shares = {
            "requests": self.admitted,
            "running": self.slots.slots,
            "body_bytes": self.body_bytes,
            "streams": self.streams,
            "sessions": self.sessions,
            "connections": self.connections,
            "unread_bytes": self.unread,
        }
        return {name: share.usage() for name, share in shares.items()}


class SessionSlot:
    """The slot of a session that a request may open: given back with the request, unless the session keeps it."""

    __slots__ = ("_holder", "_is_kept", "_sessions")

    def __init__(self, sessions: FairShare, holder: Holder) -> None:
        self._sessions = sessions
        self._holder = holder
        self._is_kept = False

    def keep_until(self, stack: AsyncExitStack) -> None:
        """The session is open, until the stack is closed."""
        if not self._is_kept:
            self._is_kept = True
            stack.callback(self._sessions.release, self._holder)

    def release_unless_kept(self) -> None:
        if not self._is_kept:
            self._sessions.release(self._holder)


RequestOfSession = tuple[Holder, bytes, RequestId]
"""The holder, the session and the id of a request."""


class RequestsOfSessions:
    """The requests of sessions that are not over, no two of one session with the same id: nothing would tell which of
    them an answer is for, and the transport has room for one. Whose the session is will be looked at later: what others
    send in its name is no request of it.

    To a client that uses an id again once it has been answered, the moment until that request is over means nothing: it
    is waited for.
    """

    def __init__(self) -> None:
        self._over: dict[RequestOfSession, asyncio.Event | None] = {}
        """By request, an event that is set when it is over, if somebody waits for that."""

    def begin(self, of_whom: RequestOfSession) -> bool:
        """A request begins; False: another one has its id."""
        if of_whom in self._over:
            return False
        self._over[of_whom] = None
        return True

    async def begin_soon(self, of_whom: RequestOfSession) -> bool:
        """The same once the other one is over; False: it goes on."""
        try:
            async with asyncio.timeout(_REUSE_BOUND):
                while not self.begin(of_whom):
                    over = self._over[of_whom] = self._over[of_whom] or asyncio.Event()
                    await over.wait()
        except TimeoutError:
            return False
        return True

    def end(self, of_whom: RequestOfSession) -> None:
        over = self._over.pop(of_whom)
        if over is not None:
            over.set()


class Gate:
    """An ASGI layer that answers 503 to what is too much."""

    def __init__(
        self,
        app: ASGIApp,
        limits: GateLimits,
        endpoints: Endpoints,
        *,
        has_auth: bool,
        admission: AdmissionQueue | None = None,
    ) -> None:
        """`admission` is shared by several gates; without it, this one has its own."""
        self._app = app
        self._limits = limits
        self._endpoints = endpoints
        self._has_auth = has_auth
        self._admission = admission or AdmissionQueue(limits)
        self._in_sessions = RequestsOfSessions()
        self._messages: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        """Locks by holder and session: held while the session takes a message."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        is_let_in = self._is_let_in(scope)
        if is_let_in:
            scope[HOLDER] = _holder_of(scope)
        connection = scope.get(CONNECTION)
        if connection is not None and not connection.is_lost:
            connection.holder = scope[HOLDER] if is_let_in else connection.address
        if scope["method"] == "GET":
            receive = NoBody(receive).receive
            if not is_let_in or is_look(scope):
                return self._app(scope, receive, send)
            request = self._admission.pacer.request_of(scope[HOLDER])
            return Charged(request, self._get_in_turn(request, scope, receive, send))
        if scope.get(IS_ENDING) and not self._endpoints.is_of_session(scope):
            return reject(scope, receive, send, SHUTTING_DOWN)
        if not is_let_in:
            return self._app(scope, receive, send)
        request = self._admission.pacer.request_of(scope[HOLDER])
        return Charged(request, self._admit(request, scope, receive, send))

    async def _admit(self, request: PacedRequest, scope: Scope, receive: Receive, send: Send) -> None:
        holder = scope[HOLDER]
        admission = self._admission
        if not admission.admitted.try_acquire(holder):
            await self._refuse(scope, receive, send, "too many requests")
            return
        body = Body(receive, partial(admission.body_bytes.try_acquire, holder))
        of_whom: RequestOfSession | None = None
        try:
            if holder in admission.refused.lately:
                await admission.refused.turn(holder)
            try:
                content = await body.read(
                    bound=self._limits.wait_bound, grace=self._limits.body_grace, is_here=bool(scope.get(HAS_BODY))
                )
            except (TimeoutError, NoRoom, TooManyParts, ClientDisconnect) as error:
                await _refuse_body(error, scope, receive, send)
                return
            kind, asked = self._endpoints.kind_of(scope, content)
            is_too_long = (
                kind is RequestKind.OPENING and len(content) > _OPENING_BYTES and self._endpoints.is_handshake(content)
            )
            parts = count_parts(content) if len(content) > _LONG else 0
            del content  # which the body has, until it is received from there
            scope[BODY] = body
            if is_too_long:
                why = f"a request that opens a session has at most {_OPENING_BYTES} bytes"
                await PlainTextResponse(why, 413)(scope, receive, send)
                return
            if pause := request.pause(0.0 if kind is RequestKind.WORK else _BESIDES.get(kind, 0.0)):
                await asyncio.sleep(pause)
            request.at_least = min(parts, PARTS_LIMIT) * _PART_COST
            if asked is not None:
                session, request_id = asked
                key = holder, session, coerce_request_id(request_id)
                if not self._in_sessions.begin(key) and not await self._in_sessions.begin_soon(key):
                    refusal = JSONRPCError(jsonrpc="2.0", id=request_id, error=id_in_use().error)
                    await Response(encode(refusal), 400, media_type="application/json")(scope, body.receive, send)
                    return
                of_whom = key
            if kind is not RequestKind.STREAM or scope.get(IS_ENDING):
                await self._serve(kind, scope, body, send)
                return
        finally:
            if of_whom is not None:
                self._in_sessions.end(of_whom)
            scope.pop(BODY, None)  # which receives from what has the scope
            admission.admitted.release(holder)
            if body.size:
                admission.body_bytes.release(holder, body.size)
        scope.get(ON_LISTENING, _ignore)()
        await self._listen(scope, body.receive, send)

    async def _serve(self, kind: RequestKind, scope: Scope, body: Body, send: Send) -> None:
        """Serve an admitted request, when its turn has come."""
        if kind is RequestKind.MESSAGE:
            session = scope[HOLDER], self._endpoints.session_of(scope)
            async with self._messages.setdefault(session, asyncio.Lock()):
                await self._app(scope, body.receive, send)
        elif scope.get(IS_ENDING):
            await reject(scope, body.receive, send, SHUTTING_DOWN)
        else:
            connection = scope.get(CONNECTION)
            with self._admission.slots.slot(scope[HOLDER]) as slot:
                if not slot.acquire_nowait() and not await slot.acquire_within(self._limits.wait_bound):
                    await reject(scope, body.receive, send, "the request waited too long for its turn")
                elif connection is None or not connection.is_lost or self._endpoints.is_of_session(scope):
                    await (self._open if kind is RequestKind.OPENING else self._app)(scope, body.receive, send)
                else:  # nobody has this, but uvicorn takes it for an error if there is nothing
                    await reject(scope, body.receive, send, "the client has left")

    async def _get_in_turn(self, request: PacedRequest, scope: Scope, receive: Receive, send: Send) -> None:
        if pause := request.pause():
            await asyncio.sleep(pause)
        await (self._listen if self._endpoints.may_listen(scope) else self._app)(scope, receive, send)

    async def _listen(self, scope: Scope, receive: Receive, send: Send) -> None:
        holder = scope[HOLDER]
        if not self._admission.streams.try_acquire(holder):
            await self._refuse(scope, receive, send, "too many open streams")
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._admission.streams.release(holder)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        slot = scope[SESSION_SLOT] = self._admission.session_slot(scope[HOLDER])
        if slot is None:
            await self._refuse(scope, receive, send, "too many open sessions")
            return
        try:
            await self._app(scope, receive, send)
        finally:
            slot.release_unless_kept()

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, reason: str) -> None:
        """Reject what its holder has no slot for, in the turn of those who go on after that."""
        await self._admission.refused.refuse(scope[HOLDER], scope.get(CONNECTION))
        await reject(scope, receive, send, reason)

    def _is_let_in(self, scope: Scope) -> bool:
        """True if authentication, where there is any, has let the request in; if not, the app will refuse it."""
        return not self._has_auth or bool(getattr(scope.get("user"), "is_authenticated", False))


def is_look(scope: Scope) -> bool:
    """True if a GET is a liveness probe."""
    return route_path(scope) in _SIGNS_OF_LIFE


def _ignore() -> None: ...


def _holder_of(scope: Scope) -> Holder:
    """The holder that an HTTP request counts for: its principal, with whatever key, or else its client's address."""
    token = access_token_of(scope) if "user" in scope else None
    if token is not None:
        return principal_of(token).bare
    client = scope.get("client")
    return network_of(client[0]) if client else ""


async def reject(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
    """Answer 503, with the time to wait."""
    await PlainTextResponse(reason, 503, {"Retry-After": RETRY_AFTER})(scope, receive, send)


async def _refuse_body(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request whose body is not taken: 408, it comes too slowly; 413, it costs too much to parse; or 503."""
    match error:
        case TimeoutError():
            await PlainTextResponse("request body timeout", 408, {"Connection": "close"})(scope, receive, send)
        case TooManyParts(content=content):
            await Response(encode(too_many_parts(content)), 413, media_type="application/json")(scope, receive, send)
        case NoRoom():
            await reject(scope, receive, send, "the bodies of requests take too much memory")
