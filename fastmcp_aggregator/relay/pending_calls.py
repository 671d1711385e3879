"""Pending calls: a legacy child has asked something, and its call stays open until the modern client answers.

Theory. A legacy child asks while it works on a call; a modern client is asked by ending its request with an
`InputRequiredResult` and asks again with the answers. So the child's call runs in a task of its own, which outlives the
client's request. Each round of the client waits for what comes first: the result, or the next questions. Between rounds
the call is held here under the `requestState` that the client was given: unguessable, good for one round, for the
same principal and the same request only, and for a limited time. A client that does not come back, that goes away
during a round, or that leaves its pipe, ends the child's call. Their number is bounded, and shared: nobody's calls keep
out those of others.

A client may come back to another replica of the hub: the state names the one that holds the call (see
`relay/remote_rounds.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY

from fastmcp_aggregator.callers.call import PENDING, Denied
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.children.session.in_flight import AskedTooLate, OnProgress
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.concurrency.limiter import FairShare
from fastmcp_aggregator.protocol import client_capabilities
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.protocol.methods import PROGRESS
from fastmcp_aggregator.replicas.peers import Peers
from fastmcp_aggregator.replicas.wire import is_replica_id

_MARK = "."
"""Between the replica that holds a call and what cannot be guessed."""
_PAUSE = 0.001
"""Seconds after which a child that has asked asks no more for now. Nothing in the protocol tells: a child that asks
several things at once sends one request after the other, usually within 0.3 ms. What comes later is the next
round's.
"""
_MOST_PAUSES = 10
"""Pauses in one round, for a child that goes on asking."""
_MISSED_LIMIT = 16
"""Reports of progress that are kept between two rounds, at most: the last ones."""
_LONGEST_MISSED = 2000


@dataclass(frozen=True, slots=True)
class Question:
    """A child's question, and the future of its answer."""

    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[Result]


Notify = Callable[[str, Mapping[str, Any]], None]
"""Sends a notification to the client of a round, which may be at another replica."""


class PendingCall:
    """A child's call on behalf of a modern client, over the rounds of that client; the owner of the call."""

    def __init__(self, caller: Caller, call: Callable[[PendingCall], Awaitable[Result]]) -> None:
        self._first = caller
        self._notify: Notify | None = caller.notify
        self.identity = caller.identity
        self.request_id = caller.request_id
        """The id of the client's latest request."""
        self.account = caller.account
        """The principal of the request with which the call began."""
        self.holder = caller.holder
        self.wants_progress = caller.wants_progress
        self._missed: deque[Mapping[str, Any]] = deque(maxlen=_MISSED_LIMIT)
        """Reports of progress that came between two rounds."""
        self._questions: dict[str, Question] = {}
        self._names = (f"input-{number}" for number in itertools.count(1))
        self._has_news = asyncio.Event()
        """Set when the child asks something, or the call is over."""
        self._refusal: MCPError | None = None
        self._has_ended = False
        self._task = asyncio.ensure_future(call(self))
        self._task.add_done_callback(lambda _: self._has_news.set())

    @property
    def log_level(self) -> str | None:
        """The client's log level when the call began."""
        return self._first.log_level

    @property
    def capabilities(self) -> client_capabilities.Capabilities:
        """The client's capabilities when the call began."""
        return self._first.capabilities

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers of the request with which the call began."""
        return self._first.headers

    def at_end_of_session(self, close: Callable[[], None]) -> bool:
        """Have something done when the client leaves; whether that will be known."""
        return self._first.at_end_of_session(close)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification to the client's present round; between rounds progress is kept, and all else dropped."""
        if self._notify is not None:
            self._notify(method, params)
        elif method == PROGRESS.name and len(repr(params)) <= _LONGEST_MISSED:
            self._missed.append(params)

    def hang_up(self) -> None:
        """Nothing: a modern client cannot come back to a response."""

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> Result:
        """The client's answer, which arrives with one of its next rounds."""
        if self._has_ended:  # its task has yet to take note
            raise AskedTooLate
        required = client_capabilities.required_for(method, params)
        if not client_capabilities.has(self.capabilities, required):
            self._refusal = missing_capability(required)
            self._has_news.set()
            raise self._refusal
        name = next(self._names)
        question = Question(method, params, asyncio.get_running_loop().create_future())
        self._questions[name] = question
        self._has_news.set()
        try:
            return await question.answer
        finally:
            self._questions.pop(name, None)

    async def round(self) -> Result | None:
        """The child's result; None when it asks something first.

        Raises:
            MCPError: the child's error, or the client cannot be asked what the child needs.
        """
        while not self._task.done():
            await self._until_something_happens()
            if self._refusal is not None:
                raise self._refusal
            if self._questions and not self._task.done():
                return None
            self._has_news.clear()
        return self._task.result()

    async def _until_something_happens(self) -> None:
        await self._has_news.wait()
        known = 0
        for _ in range(_MOST_PAUSES):
            if len(self._questions) == known or self._task.done():
                return
            known = len(self._questions)
            await asyncio.sleep(_PAUSE)

    def questions(self) -> dict[str, Any]:
        """The child's open questions: `inputRequests` by name."""
        return {
            name: {"method": question.method, **({"params": dict(question.params)} if question.params else {})}
            for name, question in self._questions.items()
        }

    def leave(self) -> None:
        """The client's round is over; it is to come back."""
        self._notify = None

    def resume(self, notify: Notify, answers: Mapping[str, Any], request_id: str = "") -> None:
        """The client is back, with answers by name. What it does not answer is asked again.

        Without the request's id, which another replica knows, it cannot be cancelled when it has been answered.
        """
        self._notify = notify
        self.request_id = request_id
        while self._missed:
            notify(PROGRESS.name, self._missed.popleft())
        for name, answer in answers.items():
            question = self._questions.get(name)
            if question is not None and not question.answer.done() and isinstance(answer, dict):
                question.answer.set_result(answer)
                del self._questions[name]

    def end(self) -> None:
        """Cancel the child's call, if it is not over; what the child has asked over it is refused."""
        self._has_ended = True
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(AskedTooLate())
        self._task.cancel()
        # A result or error that is no longer awaited is not an accident to be reported.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())


Identity = tuple[Hashable, Hashable]
"""The caller and the call: the same must come back."""


@dataclass(frozen=True, slots=True)
class _Entry:
    call: PendingCall
    identity: Identity
    expiry: asyncio.TimerHandle


class PendingCalls:
    """The calls whose clients are to come back. Owned by one `Runtime`."""

    def __init__(self, timings: Timings, peers: Peers) -> None:
        self.timeout = timings.pending_timeout
        self._pending: dict[str, _Entry] = {}
        self._states: dict[tuple[Hashable, str], str] = {}
        """Keys of `_pending`, by client and the id of the request that they answered."""
        self._present: set[Hashable] = set()
        """The clients on pipes of which it is told here when they leave."""
        self._capacity = FairShare(timings.pending_calls)
        self._peers = peers

    async def round(self, call: PendingCall, identity: Callable[[], Identity]) -> Result:
        """The child's result, or what it asks first; then the call is held until its client comes back.

        Raises:
            MCPError: the child's error, or the client cannot be asked, or too many calls are pending.
        """
        is_held = False
        try:
            result = await call.round()
            if result is not None:
                return result
            state = self._hold(call, identity())
            is_held = True
            return {"resultType": "input_required", "inputRequests": call.questions(), "requestState": state}
        finally:
            call.leave()
            if not is_held:
                call.end()

    def take(self, state: str, identity: Identity) -> PendingCall:
        """The call that is held under this `requestState`.

        Raises:
            MCPError: it is over, or belongs to someone else or to another request.
        """
        entry = self._pending.get(state)
        if entry is None:
            raise call_is_over()
        if entry.identity != identity:
            told = call_is_over()
            raise Denied(told.code, told.message, reason="the call belongs to another caller, or to another request")
        self._remove(state)
        return entry.call

    def _hold(self, call: PendingCall, identity: Identity) -> str:
        """Hold a call until its client is back; the `requestState` for the client."""
        if not self._capacity.try_acquire(call.holder):
            raise MCPError(INTERNAL_ERROR, "too many calls wait for their clients' answers already; try again")
        replica = self._peers.id
        state = f"{PENDING}{replica}{_MARK if replica else ''}{secrets.token_urlsafe(24)}"
        expiry = asyncio.get_running_loop().call_later(self.timeout, self._expire, state)
        self._pending[state] = _Entry(call, identity, expiry)
        self._states[call.identity, call.request_id] = state
        client = call.identity
        if client not in self._present and call.at_end_of_session(partial(self._left, client)):
            self._present.add(client)
        return state

    def owner_replica(self, state: str) -> str | None:
        """The other replica that holds the call of this `requestState`; None: no other does."""
        if state in self._pending:
            return None
        replica, mark, _ = state.removeprefix(PENDING).partition(_MARK)
        return replica if mark and is_replica_id(replica) and replica != self._peers.id else None

    def cancel(self, client: Hashable, request_id: str) -> None:
        """End the call whose client has cancelled a request that was answered with questions: it will not come back.

        The answer was on its way, and the client heeds it no more.
        """
        if state := self._states.get((client, request_id)):
            self._expire(state)

    def end(self, call: PendingCall) -> None:
        """Cancel a call, whether it is held or its client has a round."""
        for state in [state for state, entry in self._pending.items() if entry.call is call]:
            self._expire(state)
        call.end()

    def close(self) -> None:
        for state in list(self._pending):
            self._expire(state)

    def _left(self, client: Hashable) -> None:
        self._present.discard(client)
        for state in [state for state, entry in self._pending.items() if entry.call.identity == client]:
            self._expire(state)

    def _expire(self, state: str) -> None:
        if state in self._pending:
            self._remove(state).end()

    def _remove(self, state: str) -> PendingCall:
        entry = self._pending.pop(state)
        entry.expiry.cancel()
        self._states.pop((entry.call.identity, entry.call.request_id), None)
        self._capacity.release(entry.call.holder)
        return entry.call


def call_is_over() -> MCPError:
    """A `requestState` that cannot be used, for whatever reason: a client learns nothing of the calls of others."""
    return MCPError(INVALID_PARAMS, "requestState: the call that it continues is over; call again without it")


def missing_capability(required: Mapping[str, Any]) -> MCPError:
    """The request cannot be served for a client that has not declared this (2026-07-28)."""
    name = next(iter(required))
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"Missing required client capability: {name}",
        {"requiredCapabilities": dict(required)},
    )
