"""The requests to one child: a slot of its limiter, its session or why there is none, the deadline, the breaker.

A request acquires a slot first, also to a child that is down, so that their number is bounded; the others queue, up to
a bound, and their deadlines run. Callers take turns there, and none has all slots or all of the queue, so that
nobody waits for the calls of another; see `concurrency/limiter.py`. A request to a child that waits for its next
attempt triggers that attempt and waits for it, within a bound; one to a child that sleeps starts it, and waits for as
long as it may take to start. If the component is another by then, the request is not sent: it was made for what was
listed. A request is sent at most once, with one exception: what was rejected because the session had expired was not
executed, so reads are sent again on the new session; a tool call is not, but says so. What could not be written, as the
process has just ended, waits for the next one. What the child answers, result or error, goes back unchanged.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.catalogue.snapshot import Catalogue, definition_of
from fastmcp_aggregator.children.breaker import Breaker
from fastmcp_aggregator.children.session.direct import DirectCaller, DirectRequest
from fastmcp_aggregator.children.session.in_flight import AnyCaller
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.children.session.transport_failure import RemoteFailure
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.concurrency.limiter import FairLimiter, FairShare, Holder, released_while_waiting
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.protocol.methods import PROGRESS, TOOLS_CALL
from fastmcp_aggregator.settings.options import ChildOptions


class AnyChild(Protocol):
    """The child as its callers see it."""

    key: str
    session: ChildSession | None
    settled: asyncio.Event
    """Set once the first start has succeeded or failed, or is not needed."""
    attempted: asyncio.Event
    is_waking: bool
    last_failure: ChildServerError | None
    why_stopped: str

    @property
    def catalogue(self) -> Catalogue | None: ...

    @property
    def is_serving(self) -> bool: ...

    @property
    def retry_for_call_in(self) -> float | None:
        """Seconds until a failed child is tried again, or until a call may trigger that."""
        ...

    def wake(self) -> None:
        """Start it, if it sleeps."""

    async def until_settled(self) -> None:
        """Wait until the child has started or failed once."""

    async def until_awake(self) -> None:
        """Wait while it is being woken."""

    async def explain(self, error: Exception | None) -> ChildServerError:
        """Why the current connection ended, as an error."""
        ...

    def trigger_retry(self) -> bool:
        """Make the next attempt now, if that is allowed yet; whether there is one to wait for."""
        ...


@dataclass(eq=False, slots=True)  # not frozen, for one is made for each call
class StartedRequest:
    """A request that was sent directly, to this session, when the clock said `began`."""

    method: str
    session: ChildSession
    request: DirectRequest
    holder: Holder
    began: float


class Calls:
    """All requests to one child, over the sessions of all its lives."""

    def __init__(self, child: AnyChild, options: ChildOptions, timings: Timings) -> None:
        self._child = child
        self._timings = timings
        self._clock = timings.clock
        self._startup_timeout = options.startup_timeout
        self._deadline = options.deadlines.call
        self._deadlines = options.deadlines.by_method
        self._limiter = FairLimiter(options.max_concurrent_calls, has_reserve=False)
        self._queue = FairShare(options.max_waiting_calls)
        self._asking: set[_Attempt] = set()
        """The calls that wait for their clients' answers for as long as these take."""
        self._cut: ChildSession | None = None
        """The session of a process that reads nothing any more, which will be noticed in a moment."""
        self.breaker = Breaker(timings)
        self.unanswered = 0
        """Requests that timed out."""
        self.last_answer = self._clock()
        """When the child last answered, or was otherwise active."""
        self.last_used = self._clock()
        """When the last request ended."""

    @property
    def in_flight(self) -> int:
        """Requests that hold a slot."""
        return self._limiter.taken

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._limiter.waiting

    @property
    def callers(self) -> int:
        """Callers whose requests hold slots."""
        return self._limiter.slots.holders

    @property
    def largest_holder(self) -> Holder:
        """The holder of the most slots."""
        return self._limiter.slots.largest()[0]

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        caller: AnyCaller | None = None,
        holder: Holder = None,
        spent: float = 0.0,
        started: StartedRequest | None = None,
    ) -> Result:
        """Send one request, or wait for the one that was `started`; its result unchanged. Without a caller, `holder`
        says whose share it takes. Of its deadline so many seconds are `spent`.

        Raises:
            ChildServerError: the child is unavailable or busy, or was lost or timed out.
            MCPError: the child's own error.
        """
        holder = holder if caller is None else caller.holder
        if started is None and not self._limiter.acquire_nowait(holder):
            spent = await self._acquire(method, holder, spent)
        limit, may_repeat = self._deadlines.get(method, self._deadline), method != TOOLS_CALL.name
        age = 0.0 if started is None else self._clock() - started.began
        try:
            while True:
                session = self._child.session if started is None else started.session
                if session is None or (started is None and (session is self._cut or session.lost.is_set())):
                    session = await self._session_as_listed(method, params, caller)
                if started is None and self.breaker.has_failures:
                    self._require_closed_breaker()
                try:
                    async with _Attempt(self, session, method, holder, limit, waited=spent, age=age) as attempt:
                        if started is not None and caller is not None:
                            return await started.request.adopted(caller, attempt)
                        return await session.request(method, params, caller, attempt)
                except RemoteFailure as error:
                    # What an expired session refuses is not executed: what only reads is sent once more.
                    if error.failure.kind != "expired" or not may_repeat:
                        raise self._explained(error) from None
                started, age, may_repeat = None, 0.0, False
        finally:
            self.release(holder)

    # Direct requests: sent at once or not at all.

    def reserve(self, holder: Holder) -> bool:
        """Take a slot for a request that is to be started, if it would not have to wait; `release` it if it is not."""
        return not (self.breaker.has_failures and self.breaker.is_open) and self._limiter.acquire_nowait(holder)

    def refusal(self, holder: Holder) -> ChildServerError | None:
        """Why a request would be refused before it is sent, or waits; None: it would not."""
        now, has_slot = self._clock(), self._limiter.slots.has_room(holder)
        seconds = self.breaker.remaining(now)
        if seconds is not None and not (has_slot and self.breaker.may_probe(now)):
            return self._breaker_open(seconds)
        if has_slot or self._queue.has_room(holder):
            return None
        self._queue.refused += 1
        return self._busy(self._load, "no more may wait")

    def start(
        self, method: str, params: Mapping[str, Any], caller: DirectCaller, timeout: float = math.inf
    ) -> StartedRequest:
        """Send a request at once, which has the reserved slot until it is completed, abandoned or adopted.

        It is told as expired after its deadline, or after `timeout` seconds.

        Raises:
            OSError: the connection is lost.
        """
        session = self._child.session
        assert session is not None
        limit = min(timeout, self._deadlines.get(method, self._deadline))
        try:
            request = session.direct.send(method, params, caller, limit)
        except OSError:
            self._cut = session
            raise
        return StartedRequest(method, session, request, caller.holder, self._clock())

    def complete(self, started: StartedRequest) -> None:
        self.answered()
        self.release(started.holder)

    def abandon(self, started: StartedRequest) -> None:
        """Cancel a request that was started."""
        started.request.cancel()
        self.breaker.abandoned()
        self.release(started.holder)

    async def session(self, caller: AnyCaller | None = None) -> ChildSession:
        """Wait for the child's first start, wake it, or trigger its next one; returns its session. The caller hears
        that it is still starting.

        Raises:
            ChildServerError: there is none, for this reason.
        """
        child = self._child
        starting = f"server {child.key!r} is starting"
        if not child.settled.is_set():
            with released_while_waiting.get()():
                await self._reporting(child.until_settled(), caller, starting)
        child.wake()
        if was_woken := child.is_waking:
            with released_while_waiting.get()():
                await self._reporting(self._until_awake(), caller, starting)
        if child.session is not None and child.session.lost.is_set():
            await self._until_noticed(child.session)
        if child.session is None and not was_woken and child.trigger_retry():
            with suppress(TimeoutError):
                await asyncio.wait_for(child.attempted.wait(), self._timings.wake_bound)
        if child.session is None or child.session.lost.is_set():
            raise self._unavailable()
        return child.session

    def answered(self) -> None:
        """Record an answer, or other activity of the child."""
        self.last_answer = self._clock()
        if self.breaker.has_failures:
            self.breaker.succeeded()

    def failed(self) -> None:
        """Record a timeout or a lost connection."""
        self.breaker.failed(self._clock())

    async def _reporting(self, waiting: Coroutine[Any, Any, None], caller: AnyCaller | None, message: str) -> None:
        """Wait, and tell the caller so now and then.

        Progress has to increase with each notification, and a server's own may begin at 0: so this ends below that.
        """
        if caller is None or not caller.wants_progress:
            return await waiting
        task = asyncio.ensure_future(waiting)
        said = 0
        try:
            while not (await asyncio.wait({task}, timeout=self._timings.report_interval))[0]:
                said += 1
                caller.notify(PROGRESS.name, {"progress": -1 / said, "message": message})
            return task.result()
        finally:
            task.cancel()

    async def _until_awake(self) -> None:
        """Wait for a start because of a request, as long as that may take."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._startup_timeout + self._timings.notice_bound):
                await self._child.until_awake()

    def release(self, holder: Holder) -> None:
        """Give a slot back."""
        self.last_used = self._clock()
        self._limiter.release(holder)

    async def _acquire(self, method: str, holder: Holder, spent: float) -> float:
        """Queue for a slot; returns the seconds that are spent then."""
        if (refusal := self.refusal(holder)) is not None:
            raise refusal
        load = self._load
        self._queue.force_acquire(holder)
        began, limit = self._clock(), self._deadlines.get(method, self._deadline)
        self._bound_those_that_ask(holder)
        try:
            with released_while_waiting.get()():
                async with asyncio.timeout(limit - spent):
                    await self._limiter.acquire(holder)
        except TimeoutError:
            raise self._busy(load, f"this one got no slot within {limit:g} s") from None
        finally:
            self._queue.release(holder)
        return spent + self._clock() - began

    def _bound_those_that_ask(self, holder: Holder) -> None:
        """A call of this holder waits: those of others have a while left for their clients' answers."""
        for attempt in [attempt for attempt in self._asking if attempt.holder != holder]:
            self._asking.discard(attempt)
            attempt.bound(self._timings.asking_bound)

    def asks(self, attempt: _Attempt) -> None:
        """A call begins to wait for its client's answers."""
        if self._limiter.has_waiting_besides(attempt.holder):
            attempt.bound(self._timings.asking_bound)
        else:
            self._asking.add(attempt)

    async def _session_as_listed(
        self, method: str, params: Mapping[str, Any], caller: AnyCaller | None
    ) -> ChildSession:
        """The session to send a request to that cannot be sent at once, if what it is for is still what was listed.

        Raises:
            ChildServerError: there is none, or it is another component by now.
        """
        if self._cut is not None and self._cut is self._child.session:
            await self._until_noticed(self._cut)
        session = self._child.session
        if session is None or session.lost.is_set():
            listed = definition_of(self._child.catalogue, method, params)
            session = await self.session(caller)
            if listed is not None and definition_of(self._child.catalogue, method, params) != listed:
                raise self._changed(method, params)
        return session

    async def ended(self, attempt: _Attempt, error: BaseException | None, *, is_late: bool) -> None:
        """Record what the outcome of a request tells of the child.

        Raises:
            ChildServerError: in place of the error: the deadline is over, or the session has ended.
        """
        self._asking.discard(attempt)
        session, method = attempt.session, attempt.method
        if is_late:
            raise self._late(attempt) from None
        match error:
            case RemoteFailure():
                if error.failure.is_answer:
                    self.answered()
                else:
                    self.failed()
                if session.lost.is_set():
                    await self._until_noticed(session)
            case MCPError() | ConnectionError() if not isinstance(error, MCPError) or session.is_over(error):
                if isinstance(error, MCPError):
                    self.failed()
                why = await self._child.explain(None)
                lost = self._child.why_stopped
                raise self._because(
                    lambda reason: f"{lost or reason} while it was answering {method}", why, error
                ) from None
            case None | MCPError():
                self.answered()
            case _:  # cancelled, or it went wrong here
                self.breaker.abandoned()

    def _late(self, attempt: _Attempt) -> ChildServerError:
        """Why a request was ended here; a child that had all the time for it counts as one that does not answer."""
        method, limit, waited = attempt.method, attempt.limit, attempt.waited
        if attempt.is_bound:
            self.breaker.abandoned()
            why = "its client did not answer a question, and calls of others wait"
            return ChildServerError(self._child.key, "runtime", f"{method} was ended: {why}")
        self.unanswered += 1
        if waited and self._clock() - self.last_answer < limit:
            self.breaker.abandoned()
        else:
            self.failed()
        of_them = f", {waited:.1f} s of them before it was sent" if waited else ""
        return ChildServerError(self._child.key, "runtime", f"it did not answer {method} within {limit:g} s{of_them}")

    async def _until_noticed(self, session: ChildSession) -> None:
        """Wait, within a bound, until the supervision has noticed that the session is lost."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timings.notice_bound):
                while self._child.session is session:
                    await self._child.attempted.wait()

    # Why a request has no answer.

    def _changed(self, method: str, params: Mapping[str, Any]) -> ChildServerError:
        what = "tool" if method == TOOLS_CALL.name else "prompt"
        reason = f"its {what} {params['name']!r} is another one than was listed, so it was not called; list again"
        return ChildServerError(self._child.key, "runtime", reason)

    def _require_closed_breaker(self) -> None:
        if (seconds := self.breaker.wait(self._clock())) is not None:
            raise self._breaker_open(seconds)

    def _breaker_open(self, seconds: float) -> ChildServerError:
        """A rejected call: the breaker is open for so long."""
        reason = f"it is unavailable: it did not answer several times in a row, next try in {seconds:.0f} s"
        return ChildServerError(self._child.key, "runtime", reason, retry_in=seconds)

    @property
    def _load(self) -> str:
        return f"calls in flight: {self.in_flight}, waiting: {self.waiting}"

    def _busy(self, load: str, what: str) -> ChildServerError:
        reason = f"it is busy ({load}): {what}; try again later, or raise `max_concurrent_calls`"
        return ChildServerError(self._child.key, "runtime", reason)

    def _explained(self, error: RemoteFailure) -> ChildServerError:
        """A request that a remote child did not answer, as the caller is told."""
        child, reason = self._child, error.failure.reason
        if error.failure.kind == "expired":
            reason += ", the call was not executed; try again"
        retry_in = error.failure.pause or None if child.is_serving else child.retry_for_call_in
        is_login = error.failure.kind == "login"
        return ChildServerError(
            child.key, "runtime", reason, cause=error, retry_in=retry_in, auth_error=is_login, login_needed=is_login
        )

    def _unavailable(self) -> ChildServerError:
        child = self._child
        if child.why_stopped:
            return self._because(lambda _: f"it is unavailable: {child.why_stopped}")
        seconds, failure = child.retry_for_call_in, child.last_failure
        when = f", next try in {seconds:.0f} s" if seconds is not None else ", a new try is under way"
        if failure is None:
            return self._because(lambda _: f"it is unavailable{when}")
        if math.isinf(failure.pause):
            return self._because(lambda why: f"it is unavailable: {why}", failure)
        return self._because(lambda why: f"it is unavailable ({why}){when}", failure)

    def _because(
        self,
        sentence: Callable[[str], str],
        why: ChildServerError | None = None,
        cause: Exception | None = None,
    ) -> ChildServerError:
        """A failed request, with a reason for the local log and a public one without details."""
        reason, public = (why.reason, why.public_reason) if why is not None else ("", "")
        return ChildServerError(
            self._child.key,
            why.phase if why is not None else "runtime",
            sentence(reason),
            cause=cause,
            retry_in=self._child.retry_for_call_in,
            login_needed=why is not None and why.login_needed,
            public_reason=sentence(public),
        )


class _Attempt:
    """One request on its way: its deadline, which the child's activity renews, and its outcome, which `Calls` is told.

    The deadline is suspended while the child waits for its client. Activity does not move the timer, which looks for
    itself when it goes off: there may be much of it.
    """

    def __init__(
        self,
        calls: Calls,
        session: ChildSession,
        method: str,
        holder: Holder,
        limit: float,
        *,
        waited: float,
        age: float,
    ) -> None:
        """It has `limit` seconds without activity, of which it has `waited` for so many, and was sent so long ago."""
        self._calls = calls
        self.session = session
        self.method = method
        self.holder = holder
        self.waited = waited
        self.limit = limit
        self._scope = anyio.CancelScope()
        self._loop = asyncio.get_running_loop()
        self._expires = self._loop.time() + limit - waited - age
        self._timer = self._loop.call_at(self._expires, self._look)
        self._questions = 0
        self.is_bound = False
        """True if the client's time to answer is limited."""

    async def __aenter__(self) -> Self:
        self._scope.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        is_late = bool(self._scope.__exit__(kind, error, traceback))
        await self._calls.ended(self, error, is_late=is_late)

    def touch(self) -> None:
        self._calls.answered()
        if not self.is_bound:
            self._expires = math.inf if self._questions else self._loop.time() + self.limit

    def waits_for_client(self, *, more: bool) -> None:
        begins = more and not self._questions
        self._questions += 1 if more else -1
        self.is_bound = self.is_bound and self._questions > 0
        self.touch()
        if begins:
            self._calls.asks(self)

    def bound(self, seconds: float) -> None:
        """The client has so long to answer from now on."""
        if self._questions:
            self.is_bound = True
            self._expires = self._loop.time() + seconds
            self._timer.cancel()
            self._look()

    def _look(self) -> None:
        now = self._loop.time()
        if self._expires <= now:
            self._scope.cancel()
        else:
            self._timer = self._loop.call_at(min(self._expires, now + self.limit), self._look)
