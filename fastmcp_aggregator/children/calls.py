"""The callers' side of one child: how long a request may take, how many run, and what it means when none is answered.

Each request takes a turn, of which there are so many. The others wait, and their deadline with them; so many may wait.
A request is sent at most once. What the child answers, result or error, goes back unchanged; only what the child did
not say is put into words here.
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
from fastmcp_aggregator.concurrency.limiter import Turns, stepping_aside
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.settings.options import Deadlines


class Calls:
    """All requests to one child, over the sessions of all its lives."""

    def __init__(self, server_key: str, deadlines: Deadlines, *, concurrent: int, waiting: int) -> None:
        """At most `concurrent` requests run, and `waiting` others wait."""
        self._key = server_key
        self._deadlines = deadlines
        self._turns = Turns(concurrent)
        self._most_waiting = waiting
        self.breaker = Breaker()
        self.unanswered = 0
        """Requests that were given up at their deadline."""
        self.last_answer = time.monotonic()
        """When the child last gave a sign of life."""

    @property
    def in_flight(self) -> int:
        """Requests that have a turn."""
        return self._turns.taken

    @property
    def waiting(self) -> int:
        """Requests that wait for one."""
        return self._turns.waiting

    def take_turn(self) -> bool:
        """Take a turn if one is free. Whoever has one gives it back."""
        return self._turns.take()

    async def wait_for_turn(self, method: str) -> float:
        """Take a turn when one is free; the seconds that it took.

        Raises:
            ChildServerError: the child does not answer, too many wait already, or none was free until the deadline.
        """
        self._refuse(self.breaker.remaining(time.monotonic()))
        load = f"calls in flight: {self.in_flight}, waiting: {self.waiting}"
        if self.waiting >= self._most_waiting:
            raise self._busy(load, "no more may wait")
        began, limit = time.monotonic(), self._deadlines.of(method)
        try:
            with stepping_aside.get()():
                async with asyncio.timeout(limit):
                    await self._turns.wait()
        except TimeoutError:
            raise self._busy(load, f"this one had no turn within {limit:g} s") from None
        return time.monotonic() - began

    def give_turn_back(self) -> None:
        """The request is over."""
        self._turns.give_back()

    async def ask(
        self, session: ChildSession, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float = 0.0
    ) -> dict[str, Any]:
        """Send one request, which has a turn for which it has waited so many seconds.

        Raises:
            ChildServerError: the breaker is open, or the child was silent until the deadline.
            ConnectionError: the session ended while the child was asked.
            RemoteFailure: a remote child has not answered, or nothing that can be used.
            MCPError: the child's own error.
        """
        self._refuse(self.breaker.wait(time.monotonic()))
        try:
            return await self._within_deadline(session, method, params, owner, waited)
        except asyncio.CancelledError:
            self.breaker.abandoned()
            raise

    async def _within_deadline(
        self, session: ChildSession, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float
    ) -> dict[str, Any]:
        limit = self._deadlines.of(method)
        with anyio.move_on_after(limit - waited) as scope:
            patience = _Patience(scope, limit, self.answered)
            try:
                result = await session.request(method, params, owner=owner, patience=patience)
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
        raise ChildServerError(self._key, "runtime", f"it did not answer {method} within {limit:g} s{of_them}")

    def _refuse(self, seconds: float | None) -> None:
        """Turn a request away while the breaker is open for so long."""
        if seconds is not None:
            reason = f"it is unavailable: it did not answer several times in a row, next try in {seconds:.0f} s"
            raise ChildServerError(self._key, "runtime", reason, retry_in=seconds)

    def _busy(self, load: str, what: str) -> ChildServerError:
        reason = f"it is busy ({load}): {what}; try again later, or raise `max_concurrent_calls`"
        return ChildServerError(self._key, "runtime", reason)

    def answered(self) -> None:
        """The child gave a sign of life."""
        self.last_answer = time.monotonic()
        self.breaker.succeeded()

    def failed(self) -> None:
        """The child was silent, or gone."""
        self.breaker.failed(time.monotonic())


class _Patience:
    """A deadline that each sign of life moves, and that rests while the child waits for its client's answer."""

    def __init__(self, scope: anyio.CancelScope, limit: float, on_life: Callable[[], None]) -> None:
        self._scope = scope
        self._limit = limit
        self._on_life = on_life
        self._questions = 0

    def sign_of_life(self) -> None:
        """See `Patience`."""
        self._on_life()
        self._scope.deadline = math.inf if self._questions else anyio.current_time() + self._limit

    def waits_for_client(self, *, more: bool) -> None:
        """See `Patience`."""
        self._questions += 1 if more else -1
        self.sign_of_life()


WAKE_BOUND = 5.0
"""Seconds that a call waits for the attempt that it has brought forward."""
_NOTICE_BOUND = 1.0
"""Seconds that a call waits for the end of a lost session to be noticed, at most."""


class Askable(Protocol):
    """What a request needs to know of a child, and the one thing that it asks of its owner; see `Child`."""

    key: str
    calls: Calls
    session: ChildSession | None
    attempted: asyncio.Event
    last_failure: ChildServerError | None
    why_stopped: str

    @property
    def is_serving(self) -> bool: ...

    @property
    def retry_for_call_in(self) -> float | None: ...

    async def until_settled(self) -> None: ...

    async def explain(self, error: Exception | None) -> ChildServerError: ...

    def bring_forward(self) -> bool: ...


async def request(child: Askable, method: str, params: Mapping[str, Any], owner: Owner | None) -> dict[str, Any]:
    """Forward one request to the child; its result, or its error, comes back unchanged.

    Raises:
        ChildServerError: the child cannot be asked, or was lost or silent while it was asked.
        MCPError: the child's own error.
    """
    waited = 0.0 if child.calls.take_turn() else await child.calls.wait_for_turn(method)
    try:
        return await _ask_twice(child, method, params, owner, waited)
    finally:
        child.calls.give_turn_back()


async def _ask_twice(
    child: Askable, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float
) -> dict[str, Any]:
    try:
        return await _ask(child, method, params, owner, waited)
    except RemoteFailure as error:
        if error.failure.kind != "expired" or method == "tools/call":
            raise _told(child, error) from None
    try:
        return await _ask(child, method, params, owner, waited)
    except RemoteFailure as error:
        raise _told(child, error) from None


async def _ask(
    child: Askable, method: str, params: Mapping[str, Any], owner: Owner | None, waited: float
) -> dict[str, Any]:
    session = await session_of(child)
    try:
        return await child.calls.ask(session, method, params, owner, waited)
    except RemoteFailure:
        if session.lost.is_set():
            await _until_noticed(child, session)
        raise
    except ConnectionError as error:
        why = await child.explain(None)
        raise _because(
            child, lambda reason: f"{child.why_stopped or reason} while it was answering {method}", why, error
        ) from None


def _told(child: Askable, error: RemoteFailure) -> ChildServerError:
    """A request that a remote child did not answer, in words for its caller."""
    reason = error.failure.reason
    if error.failure.kind == "expired":
        reason += ", the call was not executed; try again"
    retry_in = error.failure.pause or None if child.is_serving else child.retry_for_call_in
    return ChildServerError(child.key, "runtime", reason, cause=error, retry_in=retry_in)


async def session_of(child: Askable) -> ChildSession:
    """The session of a child that is up; waits for its first start, and brings forward the next one.

    Raises:
        ChildServerError: there is none, and why.
    """
    await child.until_settled()
    if child.session is not None and child.session.lost.is_set():
        await _until_noticed(child, child.session)
    if child.session is None and child.bring_forward():
        with suppress(TimeoutError):
            await asyncio.wait_for(child.attempted.wait(), WAKE_BOUND)
    if child.session is None or child.session.lost.is_set():
        raise _unavailable(child)
    return child.session


async def _until_noticed(child: Askable, session: ChildSession) -> None:
    """Wait for the owner to let go of a session that is lost, for a moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_NOTICE_BOUND):
            while child.session is session:
                await child.attempted.wait()


def _unavailable(child: Askable) -> ChildServerError:
    if child.why_stopped:
        return _because(child, lambda _: f"it is unavailable: {child.why_stopped}")
    seconds = child.retry_for_call_in
    when = f", next try in {seconds:.0f} s" if seconds is not None else ", a new try is under way"
    failure = child.last_failure
    if failure is None:
        return _because(child, lambda _: f"it is unavailable{when}")
    if math.isinf(failure.pause):
        return _because(child, lambda why: f"it is unavailable: {why}", failure)
    return _because(child, lambda why: f"it is unavailable ({why}){when}", failure)


def _because(
    child: Askable,
    sentence: Callable[[str], str],
    why: ChildServerError | None = None,
    cause: Exception | None = None,
) -> ChildServerError:
    """A failed request, with its reason in a sentence: one for people on this machine, one for all others."""
    reason, public = (why.reason, why.public_reason) if why is not None else ("", "")
    return ChildServerError(
        child.key,
        "runtime",
        sentence(reason),
        cause=cause,
        retry_in=child.retry_for_call_in,
        public_reason=sentence(public),
    )
