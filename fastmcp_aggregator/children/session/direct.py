"""Direct requests to a child: sent at once, by somebody who does not wait for the answer but is told of it.

Theory. The SDK's session costs a stream, a scope and four passes of validation for each request. A direct request on a
pipe is a line out, beside the session, and, where nothing unusual happens, a line back, with the child's own bytes.
Everything else that the child says is read by the session as always, in order: an answer is taken here only when all
lines before it have been dispatched. Beside the SDK's transport for HTTP nothing can be sent (which response is whose,
sessions that expire, streams that break are its business), so there the session is asked, in a task for each request.
The caller may leave a direct request to the full path at any time (`adopted`), with what has come
of it so far.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, JSONRPCError, JSONRPCResponse
from msgspec import UNSET, Raw

from fastmcp_aggregator.children.session.in_flight import (
    ActivityDeadline,
    AnyCaller,
    AskedTooLate,
    InFlight,
    RequestsInFlight,
    send_in_context,
)
from fastmcp_aggregator.children.session.parts import LONG, TOO_MANY_PARTS, is_too_large, looking_for_parts
from fastmcp_aggregator.concurrency.waits import in_turns
from fastmcp_aggregator.message_streams import LineWriter
from fastmcp_aggregator.pipe.joined_writes import JoinedWrites
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.methods import CANCELLED

_MOST_KEPT = 1000
"""Messages about one request that are kept for who adopts it; the others are dropped."""
DirectOutcome = dict[str, Any] | Exception
"""A result, with parts as the child wrote them, or decoded; or its error, or that of the connection."""
_Told = Callable[[AnyCaller], None]
"""Passes on what the child has said."""
Addressed = Callable[[str, Mapping[str, Any], InFlight], tuple[dict[str, Any], dict[str, Any]]]
"""A request with what a child is told with each, and how the session is to send it."""
AskDecoded = Callable[[str, Mapping[str, Any], InFlight], Awaitable[dict[str, Any]]]
"""Sends a request, and waits for its result."""
_Question = asyncio.Future[AnyCaller]
"""A question of the child, which waits for the caller that is asked."""


class DirectCaller(AnyCaller, Protocol):
    """The sender of a direct request, which owns it until it is adopted."""

    def settled(self) -> None:
        """The outcome is known."""

    def expired(self) -> None:
        """The deadline is over."""


class Sink(Protocol):
    """The writer of direct requests."""

    @property
    def has_room(self) -> bool:
        """True if one can be sent without waiting."""
        ...


@dataclass(frozen=True, slots=True)
class _Fixed:
    has_room: bool


_OPEN, _CLOSED = _Fixed(True), _Fixed(False)


class DirectRequest:
    """One request that was sent directly; until it is adopted, its own deadline."""

    __slots__ = (
        "_channel",
        "_deadline",
        "_kept",
        "_questions",
        "_timeouts",
        "_waiter",
        "caller",
        "has_many_parts",
        "id",
        "in_flight",
        "outcome",
    )

    id: int
    """The id that its channel gives it."""

    def __init__(
        self, channel: DirectRequests, requests: RequestsInFlight, caller: DirectCaller, timeouts: Timeouts
    ) -> None:
        """Take it up, to be sent at once; `end` it if it is not."""
        self.caller = caller
        self.outcome: DirectOutcome | None = None
        self.has_many_parts: bool | None = None
        """True if the result has too many parts to be decoded; None: that is not known."""
        self._kept: deque[_Told | _Question] = deque()
        """The child's messages about it, in order, until it is adopted."""
        self._channel = channel
        self._deadline: ActivityDeadline | None = None
        self._questions = 0
        self._waiter: asyncio.Future[None] | None = None
        self._timeouts = timeouts
        timeouts.begin(self, caller.expired)
        self.in_flight = requests.begin(caller, self)

    async def adopted(self, caller: AnyCaller, deadline: ActivityDeadline) -> dict[str, Any]:
        """Wait for the outcome in the stead of the direct caller; cancelling that cancels the request at the child.

        Raises:
            MCPError: the child's error, or the connection was closed, or the result is too large to be decoded.
            Exception: what went wrong here.
        """
        self._timeouts.end(self)
        try:
            await self._hand_over(caller, deadline)
            if self.outcome is None:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        except asyncio.CancelledError:
            self.cancel()
            raise
        match self.outcome:
            case Exception() as error:
                raise error
            case dict() as result if raw_json.is_undecoded(result):
                text = raw_json.encode(result)
                if is_too_large(text) if self.has_many_parts is None else self.has_many_parts:
                    raise MCPError(INTERNAL_ERROR, TOO_MANY_PARTS)
                is_long = len(text) > LONG
                if is_long:
                    await asyncio.sleep(0)  # others go first: that took milliseconds, and so does the next step
                try:
                    decoded: dict[str, Any] = raw_json.decode_as_read(text)
                except ValueError:  # for a number of too many digits, or nested too deeply
                    raise MCPError(INTERNAL_ERROR, TOO_MANY_PARTS) from None
                if is_long:
                    await asyncio.sleep(0)
                return decoded
            case result:
                assert result is not None
                return result

    def cancel(self) -> None:
        """Tell the child that the call is cancelled. As any cancellation, it is dropped where the pipe has no room.

        What the child has asked over it is refused.
        """
        if self.outcome is None:
            self._channel.withdraw(self)
            self.end()
        for kept in self._kept:
            if isinstance(kept, asyncio.Future) and not kept.done():
                kept.set_exception(AskedTooLate())
        self._kept.clear()

    def settle(self, outcome: DirectOutcome) -> None:
        """Settle the request with a result, an error or a lost connection."""
        self.outcome = outcome
        self.end()
        if self._waiter is None:
            self.caller.settled()
        elif not self._waiter.done():
            self._waiter.set_result(None)

    def touch(self) -> None:
        if self._deadline is not None:
            self._deadline.touch()

    def waits_for_client(self, *, more: bool) -> None:
        self._questions += 1 if more else -1
        if self._deadline is not None:
            self._deadline.waits_for_client(more=more)

    def keep(self, tell: Callable[[AnyCaller], None]) -> None:
        """Buffer a message of the child until the request is adopted."""
        if len(self._kept) < _MOST_KEPT:
            self._kept.append(tell)

    async def adopter(self) -> AnyCaller:
        """The caller that adopts the request, once the child's messages so far were passed on. What is done next, up to
        the first wait, comes before any later message.

        Raises:
            MCPError: the request is over.
        """
        question: _Question = asyncio.get_running_loop().create_future()
        self._kept.append(question)
        return await question

    async def _hand_over(self, caller: AnyCaller, deadline: ActivityDeadline) -> None:
        """Pass on what was kept, in order, and what comes meanwhile."""
        self._deadline = deadline
        if self._kept:
            deadline.touch()
        for _ in range(self._questions):
            deadline.waits_for_client(more=True)
        while self._kept:
            kept = self._kept.popleft()
            if not isinstance(kept, asyncio.Future):
                kept(caller)
            elif not kept.done():
                kept.set_result(caller)
                await asyncio.sleep(0)  # who waited for it goes on first
        self.in_flight.caller = caller

    def end(self) -> None:
        """Release the request: it is settled or abandoned."""
        self._timeouts.end(self)
        self._channel.ended(self.in_flight)


class Timeouts:
    """Timeouts of one common length in seconds; `on_expired` is called for those that do not end in time.

    All share a timer: to set and cancel one for each call costs more than most else.
    """

    __slots__ = ("_loop", "_running", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        """When each expires; the oldest are the first to."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: Hashable, on_expired: Callable[[], None]) -> None:
        """Start its timer, until `end`."""
        loop = asyncio.get_running_loop()
        expires = loop.time() + self._seconds
        self._running[what] = (expires, on_expired)
        if self._timer is None or self._loop is not loop:
            self._loop, self._timer = loop, loop.call_at(expires, self._expire)

    def end(self, what: Hashable) -> None:
        self._running.pop(what, None)

    def _expire(self) -> None:
        assert self._loop is not None
        self._timer = None
        now = self._loop.time()
        for what, (expires, on_expired) in list(self._running.items()):
            if expires > now:
                self._timer = self._loop.call_at(expires, self._expire)
                break
            del self._running[what]
            self._loop.call_soon(on_expired)


class DirectRequests(Protocol):
    """The direct requests on one session."""

    sink: Sink

    @property
    def count(self) -> int:
        """Direct requests in flight."""
        ...

    def send(self, method: str, params: Mapping[str, Any], caller: DirectCaller, limit: float) -> DirectRequest:
        """Send a request, whose parameters may have undecoded parts; `limit` is the seconds that it has.

        Raises:
            OSError: the connection is lost.
        """
        ...

    def withdraw(self, request: DirectRequest) -> None:
        """Cancel a request at the child."""

    def ended(self, request: InFlight) -> None:
        """A request has an outcome, or was withdrawn."""


class PipeRequests:
    """Direct requests on a pipe: lines of our own. `bind` it to the session on that pipe before the first."""

    def __init__(self, pipe: LineWriter) -> None:
        self.sink: Sink = pipe
        self._pipe = pipe
        self._joined = JoinedWrites(pipe.write)
        self._pending: dict[int | str, DirectRequest] = {}
        self._timeouts = _TimeoutsByLength()
        self._next_id: Callable[[], int]
        self._requests: RequestsInFlight
        self._addressed: Addressed
        self.ended: Callable[[InFlight], None]

    def bind(self, requests: RequestsInFlight, next_id: Callable[[], int], addressed: Addressed) -> None:
        """Number requests as the session does, own them there, and tell the child with each what it does."""
        self._requests, self._next_id, self._addressed = requests, next_id, addressed
        self.ended = requests.end

    @property
    def count(self) -> int:
        return len(self._pending)

    def send(self, method: str, params: Mapping[str, Any], caller: DirectCaller, limit: float) -> DirectRequest:
        write = self._joined.add if self._pending else self._pipe.write  # where one is on its way, there may be more
        request = DirectRequest(self, self._requests, caller, self._timeouts[limit])
        request.id = self._next_id()
        try:
            told = self._addressed(method, params, request.in_flight)[0]["params"]
            line = {"jsonrpc": "2.0", "id": request.id, "method": method, "params": told}
            write(raw_json.encode(line) + b"\n")
        except Exception:
            request.end()
            raise
        self._pending[request.id] = request
        return request

    def take(self, line: bytes) -> bool:
        """True if a line is the result of a request sent here; then it is settled. All else is the session's, and what
        is long is to be given to `take_long`.
        """
        if not self._pending or len(line) > LONG or _is_of_several(line):
            return False
        try:
            if not line.isascii():
                line.decode()  # to look at all of it
            answer = raw_json.read_answer(line)
        except raw_json.Malformed:
            return False
        return _is_result(answer) and self._settle(answer.id, answer.result)

    async def take_long(self, line: bytes) -> bool:
        """`take` for a long line, in steps between which other tasks run."""
        if not self._pending or _is_of_several(line):
            return False
        try:
            answer = await in_turns(raw_json.reading_answer(line))
        except raw_json.Malformed:
            return False
        request = self._pending.get(coerce_request_id(answer.id))
        if request is None or not _is_result(answer):
            return False
        request.has_many_parts = await in_turns(looking_for_parts(line))
        await asyncio.sleep(0)
        self._settle(answer.id, answer.result)
        return True

    def take_message(self, message: object) -> bool:
        """The same for a message that the session's reader has decoded, which may be an error."""
        match message:
            case JSONRPCResponse():
                return bool(self._pending) and self._settle(message.id, message.result)
            case JSONRPCError() if message.id is not None:
                error = message.error
                return bool(self._pending) and self._settle(message.id, MCPError(error.code, error.message, error.data))
        return False

    def withdraw(self, request: DirectRequest) -> None:
        del self._pending[request.id]
        if self._pipe.has_room:
            params = {"requestId": request.id, "reason": "caller cancelled"}
            notice = {"jsonrpc": "2.0", "method": CANCELLED, "params": params}
            self._joined.flush()  # the request may be there
            with suppress(OSError):
                self._pipe.write(raw_json.encode(notice) + b"\n")

    def close(self) -> None:
        """The connection has ended: nothing more is answered."""
        self.sink = _CLOSED
        for request in list(self._pending.values()):
            self._settle(request.id, MCPError(CONNECTION_CLOSED, "Connection closed"))

    def _settle(self, request_id: int | str, outcome: DirectOutcome) -> bool:
        request = self._pending.pop(coerce_request_id(request_id), None)
        if request is not None:
            request.settle(outcome)
        return request is not None


class SessionRequests:
    """Direct requests of a session that alone can send: a task for each asks it, as the full path does. `bind` it
    first.
    """

    def __init__(self, requests: RequestsInFlight) -> None:
        self.sink: Sink = _OPEN
        self._requests = requests
        self._ask: AskDecoded
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._timeouts = _TimeoutsByLength()

    def bind(self, ask: AskDecoded) -> None:
        self._ask = ask

    @property
    def count(self) -> int:
        return len(self._asking)

    def send(self, method: str, params: Mapping[str, Any], caller: DirectCaller, limit: float) -> DirectRequest:
        """Raises: Malformed: a part that was not decoded cannot be."""
        whole = {name: raw_json.decode(part) if isinstance(part, Raw) else part for name, part in params.items()}
        request = DirectRequest(self, self._requests, caller, self._timeouts[limit])
        in_flight = request.in_flight
        request.id = in_flight.token
        asking = asyncio.create_task(self._outcome(request, in_flight, method, whole), name=f"direct:{method}")
        self._asking[request.id] = asking
        asking.add_done_callback(lambda _: self._over(in_flight))
        return request

    def withdraw(self, request: DirectRequest) -> None:
        self._asking[request.id].cancel()

    def ended(self, request: InFlight) -> None:
        """The child may still be told that it is cancelled."""

    async def aclose(self) -> None:
        """Wait for the requests, which end with the session."""
        if self._asking:
            await asyncio.wait(self._asking.values())

    async def _outcome(
        self, request: DirectRequest, in_flight: InFlight, method: str, params: Mapping[str, Any]
    ) -> None:
        send_in_context(in_flight)
        outcome: DirectOutcome
        try:
            outcome = await self._ask(method, params, in_flight)
        except Exception as error:
            outcome = error
        request.settle(outcome)

    def _over(self, in_flight: InFlight) -> None:
        del self._asking[in_flight.token]
        self._requests.end(in_flight)


class _TimeoutsByLength(dict[float, Timeouts]):
    """The timeouts of one child, by length."""

    def __missing__(self, seconds: float) -> Timeouts:
        timeouts = self[seconds] = Timeouts(seconds)
        return timeouts


def _is_result(answer: raw_json.AnswerLine) -> bool:
    return answer.method is UNSET and answer.error is UNSET


def _is_of_several(line: bytes) -> bool:
    """True if some clients would take the line for more than one, as theirs end at a carriage return."""
    return line.find(b"\r", 0, -1) >= 0
