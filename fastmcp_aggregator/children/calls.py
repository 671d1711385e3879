"""The requests to one child: a slot of its limiter, its session or why there is none, the deadline, the breaker.

A request takes a slot first, also to a child that is down, so that there are never more than so many; the others queue,
up to a bound, and their deadlines run. To a child that waits for its next attempt, a request brings that attempt
forward and waits for it, within a bound. A request is sent at most once, with one exception: what was rejected because
the session had expired was not executed, so reads are sent again on the new session; a tool call is not, but says so.
What the child answers, result or error, goes back unchanged.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import anyio
from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.children.breaker import Breaker
from fastmcp_aggregator.children.session.ownership import Owner
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.children.session.transport_failure import RemoteFailure
from fastmcp_aggregator.concurrency.limiter import ConcurrencyLimiter, released_while_waiting
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.settings.options import ChildOptions

WAKE_BOUND = 5.0
"""Seconds that a call waits for the attempt that it has brought forward."""
_NOTICE_BOUND = 1.0
"""Seconds that a call waits for the end of a lost session to be noticed, at most."""


class Callee(Protocol):
    """The child as its callers see it."""

    key: str
    session: ChildSession | None
    attempted: asyncio.Event
    last_failure: ChildServerError | None
    why_stopped: str

    @property
    def is_serving(self) -> bool: ...

    @property
    def retry_for_call_in(self) -> float | None:
        """Seconds after which a call to a failed child has it tried, or it is tried by itself."""
        ...

    async def until_settled(self) -> None:
        """Wait until the first start has succeeded or failed."""

    async def explain(self, error: Exception | None) -> ChildServerError:
        """Why the present life ends."""
        ...

    def bring_forward(self) -> bool:
        """Make the next attempt now, if it may be made; whether there is one to wait for."""
        ...


class Calls:
    """All requests to one child, over the sessions of all its lives."""

    def __init__(self, child: Callee, options: ChildOptions) -> None:
        self._child = child
        self._deadline = options.deadlines.call
        self._deadlines = options.deadlines.by_method
        self._most_waiting = options.max_waiting_calls
        self._limiter = ConcurrencyLimiter(options.max_concurrent_calls)
        self.breaker = Breaker()
        self.unanswered = 0
        """Requests that were given up at their deadline."""
        self.last_answer = time.monotonic()
        """When the child last answered, or showed otherwise that it is alive."""

    @property
    def in_flight(self) -> int:
        """Requests that have a slot."""
        return self._limiter.taken

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return self._limiter.waiting

    async def request(self, method: str, params: Mapping[str, Any], *, owner: Owner | None = None) -> Result:
        """Forward one request; its result, or the child's error, comes back unchanged.

        Raises:
            ChildServerError: the child cannot be asked, or was lost or silent while it was asked.
            MCPError: the child's own error.
        """
        waited = 0.0 if self._limiter.acquire_nowait() else await self._acquire(method)
        try:
            return await self._ask(method, params, owner, waited)
        except RemoteFailure as error:
            if error.failure.kind != "expired" or method == "tools/call":
                raise self._told(error) from None
            return await self._ask_again(method, params, owner, waited)
        finally:
            self._limiter.release()

    async def session(self) -> ChildSession:
        """The session of the child once it is up; waits for its first start, and brings forward the next attempt.

        Raises:
            ChildServerError: there is none, and why.
        """
        child = self._child
        await child.until_settled()
        if child.session is not None and child.session.lost.is_set():
            await self._until_noticed(child.session)
        if child.session is None and child.bring_forward():
            with suppress(TimeoutError):
                await asyncio.wait_for(child.attempted.wait(), WAKE_BOUND)
        if child.session is None or child.session.lost.is_set():
            raise self._unavailable()
        return child.session

    def answered(self) -> None:
        """The child has answered, or shown otherwise that it is alive."""
        self.last_answer = time.monotonic()
        self.breaker.succeeded()

    def failed(self) -> None:
        """The child was silent, or gone."""
        self.breaker.failed(time.monotonic())

    async def _acquire(self, method: str) -> float:
        """Take a slot when one is free; the seconds that it took."""
        if (seconds := self.breaker.remaining(time.monotonic())) is not None:
            raise self._cut_off(seconds)
        load = f"calls in flight: {self.in_flight}, waiting: {self.waiting}"
        if self.waiting >= self._most_waiting:
            raise self._busy(load, "no more may wait")
        began, limit = time.monotonic(), self._deadlines.get(method, self._deadline)
        try:
            with released_while_waiting.get()():
                async with asyncio.timeout(limit):
                    await self._limiter.acquire()
        except TimeoutError:
            raise self._busy(load, f"this one had no turn within {limit:g} s") from None
        return time.monotonic() - began

    async def _ask_again(self, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float) -> Result:
        try:
            return await self._ask(method, params, owner, waited)
        except RemoteFailure as error:
            raise self._told(error) from None

    async def _ask(self, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float) -> Result:
        session = self._child.session
        if session is None or session.lost.is_set():
            session = await self.session()
        if (seconds := self.breaker.wait(time.monotonic())) is not None:
            raise self._cut_off(seconds)
        try:
            return await self._within_deadline(session, method, params, owner, waited)
        except asyncio.CancelledError:
            self.breaker.abandoned()
            raise
        except RemoteFailure:
            if session.lost.is_set():
                await self._until_noticed(session)
            raise
        except ConnectionError as error:
            why = await self._child.explain(None)
            lost = self._child.why_stopped
            raise self._because(
                lambda reason: f"{lost or reason} while it was answering {method}", why, error
            ) from None

    async def _within_deadline(
        self, session: ChildSession, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float
    ) -> Result:
        """Raises: ConnectionError: the session ended while the child was asked."""
        limit = self._deadlines.get(method, self._deadline)
        with anyio.move_on_after(limit - waited) as scope:
            deadline = _ActivityDeadline(scope, limit, self.answered)
            try:
                result = await session.request(method, params, owner=owner, deadline=deadline)
            except RemoteFailure as error:
                if error.failure.is_answer:
                    self.answered()
                else:
                    self.failed()
                raise
            except MCPError as error:
                if session.is_over(error):
                    self.failed()
                    raise ConnectionError from error
                self.answered()
                raise
            self.answered()
            return result
        self.unanswered += 1
        if waited and time.monotonic() - self.last_answer < limit:
            self.breaker.abandoned()  # the child had less time for it than it may take
        else:
            self.failed()
        of_them = f", {waited:.1f} s of them before its turn" if waited else ""
        raise ChildServerError(self._child.key, "runtime", f"it did not answer {method} within {limit:g} s{of_them}")

    async def _until_noticed(self, session: ChildSession) -> None:
        """Wait for the child's task to let go of a session that is lost, for a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_NOTICE_BOUND):
                while self._child.session is session:
                    await self._child.attempted.wait()

    # Why a request has no answer.

    def _cut_off(self, seconds: float) -> ChildServerError:
        """The breaker is open for so long."""
        reason = f"it is unavailable: it did not answer several times in a row, next try in {seconds:.0f} s"
        return ChildServerError(self._child.key, "runtime", reason, retry_in=seconds)

    def _busy(self, load: str, what: str) -> ChildServerError:
        reason = f"it is busy ({load}): {what}; try again later, or raise `max_concurrent_calls`"
        return ChildServerError(self._child.key, "runtime", reason)

    def _told(self, error: RemoteFailure) -> ChildServerError:
        """A request that a remote child did not answer, in words for its caller."""
        child, reason = self._child, error.failure.reason
        if error.failure.kind == "expired":
            reason += ", the call was not executed; try again"
        retry_in = error.failure.pause or None if child.is_serving else child.retry_for_call_in
        return ChildServerError(child.key, "runtime", reason, cause=error, retry_in=retry_in)

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
        """A failed request, with its reason in a sentence: one for people on this machine, one for all others."""
        reason, public = (why.reason, why.public_reason) if why is not None else ("", "")
        return ChildServerError(
            self._child.key,
            "runtime",
            sentence(reason),
            cause=cause,
            retry_in=self._child.retry_for_call_in,
            public_reason=sentence(public),
        )


class _ActivityDeadline:
    """A deadline that activity of the child renews, and that rests while the child waits for its client's answer."""

    def __init__(self, scope: anyio.CancelScope, limit: float, on_activity: Callable[[], None]) -> None:
        self._scope = scope
        self._limit = limit
        self._on_activity = on_activity
        self._questions = 0

    def touch(self) -> None:
        self._on_activity()
        self._scope.deadline = math.inf if self._questions else anyio.current_time() + self._limit

    def waits_for_client(self, *, more: bool) -> None:
        self._questions += 1 if more else -1
        self.touch()
