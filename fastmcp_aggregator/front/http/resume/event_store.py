"""The event store: what is sent to legacy clients, kept for those that lost their connection.

Theory. The SDK stores each event before it sends it. Events are kept as the bytes that go over the wire, so that it is
known how much they take. What does not fit is not kept: there is an error in place of an answer then, so that a client
that comes back for it learns what became of it. FastMCP wraps the store for each session, and its wrapper gathers what
is replayed until all is; so the rest of an answer is not replayed, but delivered on the connection as it comes.

A legacy client may lose the connection on which it waits for an answer, or be told to hang up and to ask for the rest
later; it comes back with the id of the last event (2025-11-25, transports: resumability). So one connection after the
other carries them: first the response to the request itself, which the SDK writes, then the responses to those who come
back. Only the newest is listened to.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

import anyio
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    MCP_SESSION_ID_HEADER,
    EventCallback,
    EventMessage,
    EventStore,
)
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from starlette.types import Scope

from fastmcp_aggregator.protocol.long_texts import KEY, LongResult

_EVENT_LIMIT = 1000
"""Events kept of one stream, at most; then the oldest are dropped."""
_ANSWER_BOUND = 1.0
"""Seconds from the end of the work to its answer, at most. There is none if the session has ended."""

DeliverEvent = Callable[[str, bytes], Awaitable[None]]
"""Sends one event, by its id and its data."""
_LOG_LIMIT = 10_000
"""Logs kept that are no longer in use, at most."""
EVENTS_SIZE_LIMIT = 32 * 1024 * 1024
_SWEEP_PAUSE = 1.0
_NUMBER = re.compile("[0-9]{1,18}")
SESSION_ID = MCP_SESSION_ID_HEADER.encode()
_ANSWER = "a"
_STANDING = "s"
"""Kinds of streams: of one request each, and of what belongs to no request."""
_ANSWERS = (JSONRPCResponse, JSONRPCError)
_NOT_KEPT = "the answer was not kept until the client came back: it is too large, or cannot be sent at all"


@dataclass(slots=True)
class ResumableRequest:
    """One HTTP request, as far as it concerns the events that are sent for it."""

    scope: Scope
    stream: AnswerStream | None = None
    """On which it is answered."""
    deliver: DeliverEvent | None = None
    """The receiver of events, if the client has come back for them."""

    @property
    def session_id(self) -> bytes:
        """The session that it says it belongs to; empty if it does not."""
        return header(self.scope, SESSION_ID) or b""


RESUMABLE_REQUEST: ContextVar[ResumableRequest | None] = ContextVar("HTTP request", default=None)
"""The SDK calls the store in the context of the request, and does not name it."""


class EventLog:
    """The latest events of one stream, numbered. An event's id is the name of the log and its number."""

    def __init__(self, kind: str, stream_id: str) -> None:
        self.name = kind + secrets.token_hex(8)
        self.stream_id = stream_id
        """The SDK's id of the stream."""
        self.size = 0
        """Bytes of the events."""
        self._events: list[tuple[int, bytes]] = []
        self._last = -1

    def mark(self) -> str:
        """The id of an event that is not kept."""
        self._last += 1
        return self.id_of(self._last)

    def add(self, data: bytes) -> str:
        """The id of an event that is kept."""
        event_id = self.mark()
        self._events.append((self._last, data))
        self.size += len(data)
        if len(self._events) > _EVENT_LIMIT:
            self.size -= len(self._events.pop(0)[1])
        return event_id

    def after(self, number: int) -> list[tuple[int, bytes]]:
        return [event for event in self._events if event[0] > number]

    def id_of(self, number: int) -> str:
        return f"{self.name}.{number}"


class AnswerStream(EventLog):
    """The events of one request of the session with this id."""

    def __init__(self, kind: str, stream_id: str, session_id: bytes, answer_bound: float = _ANSWER_BOUND) -> None:
        super().__init__(kind, stream_id)
        self.session_id = session_id
        self._answer_bound = answer_bound
        self.is_answered = False
        self.is_over = False
        self._carriers = 1
        self._left_at = math.inf
        self._turn = 0
        self._changed: asyncio.Event | None = None
        self.close_response: Callable[[], Awaitable[None]] | None = None
        """Ends the response to the request itself, as long as that may be open."""

    def add(self, data: bytes) -> str:
        """Keep an event, return its id, and wake the connection that carries the stream."""
        event_id = super().add(data)
        self._change()
        return event_id

    def end(self) -> None:
        self.is_over = True
        self.close_response = None
        self._change()

    def leave(self) -> None:
        """One connection less carries the stream."""
        self._carriers -= 1
        if self._carriers == 0:
            self._left_at = anyio.current_time()
        self._change()

    async def hang_up(self) -> None:
        """End the response that carries the stream. The client comes back for the rest."""
        self._next_turn()
        await self._close()

    async def carry(self, last: int, deliver: DeliverEvent) -> None:
        """Deliver what comes after an event, until the answer is delivered or another connection carries the rest."""
        turn = self._next_turn()
        self._carriers += 1
        try:
            await self._close()
            while turn == self._turn:
                if events := self.after(last):
                    for number, data in events:
                        await deliver(self.id_of(number), data)
                        last = number
                elif self.is_answered or not await self._changes(self._answer_bound if self.is_over else math.inf):
                    return
        finally:
            self.leave()

    async def while_awaited(self, bound: float) -> None:
        """Return when the work is over and nobody reads the answer, or nobody has carried it for so many seconds."""
        while self._carriers or not self.is_over:
            deadline = math.inf if self._carriers else self._left_at + bound
            if not await self._changes(deadline - anyio.current_time()):
                return

    async def _changes(self, bound: float) -> bool:
        """True if anything changes within so many seconds."""
        if self._changed is None:
            self._changed = asyncio.Event()
        with anyio.move_on_after(bound):
            await self._changed.wait()
            return True
        return False

    def _change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _next_turn(self) -> int:
        self._turn += 1
        self._change()
        return self._turn

    async def _close(self) -> None:
        if self.close_response is not None:
            await self.close_response()


class EventLogs:
    """All logs. One that is no longer in use is kept for `keep` seconds, unless others need its room."""

    def __init__(self, keep: float, limit: int = EVENTS_SIZE_LIMIT, *, sweep_pause: float = _SWEEP_PAUSE) -> None:
        self._keep = keep
        self._limit = limit
        self._sweep_pause = sweep_pause
        self._size = 0
        self._by_stream: dict[str, EventLog] = {}
        self._by_name: dict[str, EventLog] = {}
        self._expiries: OrderedDict[str, float] = OrderedDict()
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._by_name)

    def open(self, log: EventLog) -> None:
        """Keep a log, until it is retired; the latest of a stream is the one in use."""
        self._by_stream[log.stream_id] = self._by_name[log.name] = log

    def of_stream(self, stream_id: str) -> EventLog | None:
        return self._by_stream.get(stream_id)

    def find(self, event_id: str) -> tuple[EventLog, int] | None:
        """The log that an event is in, and its number there."""
        name, _, number = event_id.rpartition(".")
        log = self._by_name.get(name)
        return (log, int(number)) if log is not None and _NUMBER.fullmatch(number) else None

    def add(self, log: EventLog, data: bytes) -> str:
        """The id of an event that is kept."""
        before = log.size
        event_id = log.add(data)
        self._size += log.size - before
        return event_id

    def make_room(self, size: int) -> bool:
        """True if so many bytes fit, once the oldest logs that are no longer in use have made room."""
        if size > self._limit:
            return False
        while self._size + size > self._limit and self._expiries:
            self._forget_oldest()
        return self._size + size <= self._limit

    def has_plenty_of_room(self, size: int) -> bool:
        """True if so many bytes fit, and leave half of the room free."""
        return self._size + size <= self._limit // 2

    def retire(self, log: EventLog) -> None:
        """Keep a log for the time that is set from now on."""
        if log.name not in self._by_name:
            return
        loop = asyncio.get_running_loop()
        self._expiries[log.name] = loop.time() + self._keep
        self._expiries.move_to_end(log.name)
        if len(self._expiries) > _LOG_LIMIT:
            self._forget_oldest()
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._keep, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._expiries and (left := next(iter(self._expiries.values())) - now) <= 0:
            self._forget_oldest()
        self._sweeping = loop.call_later(max(left, self._sweep_pause), self._sweep, loop) if self._expiries else None

    def _forget_oldest(self) -> None:
        name, _ = self._expiries.popitem(last=False)
        log = self._by_name.pop(name)
        self._size -= log.size
        if self._by_stream.get(log.stream_id) is log:
            del self._by_stream[log.stream_id]


class KeptEvents(EventStore):
    """Keeps events for `keep` seconds from when their request is over, or, of no request, from when they came."""

    def __init__(self, keep: float, *, answer_bound: float = _ANSWER_BOUND, sweep_pause: float = _SWEEP_PAUSE) -> None:
        self.logs = EventLogs(keep, sweep_pause=sweep_pause)
        self._answer_bound = answer_bound

    def find(self, event_id: str, session_id: bytes) -> tuple[EventLog, int] | None:
        """The stream that a client of this session has asked for, and the number of the last event it has had."""
        found = self.logs.find(event_id)
        if found is not None and isinstance(found[0], AnswerStream) and found[0].session_id != session_id:
            return None
        return found

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep a message, return its event id. No message: the event with which a response begins. Never raises."""
        if message is None:
            return self._begun(stream_id)
        log = self._log(stream_id)
        data = self._kept(message)
        if isinstance(log, AnswerStream) and isinstance(message, _ANSWERS):
            log.is_answered = True
        event_id = log.mark() if data is None else self.logs.add(log, data)
        if not isinstance(log, AnswerStream):
            self.logs.retire(log)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event; return the stream to follow, or None: an answer is sent here to its end."""
        resumable = RESUMABLE_REQUEST.get()
        found = self.find(last_event_id, resumable.session_id) if resumable is not None else None
        if resumable is None or resumable.deliver is None or found is None:
            return None
        log, number = found
        if isinstance(log, AnswerStream):
            await log.carry(number, resumable.deliver)
            return None
        for later, data in log.after(number):
            await send_callback(EventMessage(jsonrpc_message_adapter.validate_json(data), log.id_of(later)))
        return log.stream_id

    def _begun(self, stream_id: str) -> str:
        resumable = RESUMABLE_REQUEST.get()
        if resumable is None or resumable.deliver is not None:
            log = self._log(stream_id)
            self.logs.retire(log)
            return log.mark()
        session_id = resumable.session_id
        resumable.stream = stream = AnswerStream(_ANSWER, stream_id, session_id, self._answer_bound)
        first = stream.mark()
        self.logs.open(stream)
        return first

    def _log(self, stream_id: str) -> EventLog:
        log = self.logs.of_stream(stream_id)
        if log is None:
            log = EventLog(_STANDING if stream_id.endswith(f":{GET_STREAM_KEY}") else _ANSWER, stream_id)
            self.logs.open(log)
        return log

    def _kept(self, message: JSONRPCMessage) -> bytes | None:
        """The message as it is kept; None if it is not."""
        data = _encoded(message)
        if not isinstance(message, _ANSWERS):
            return data if data is not None and self.logs.has_plenty_of_room(len(data)) else None
        if data is not None and self.logs.make_room(len(data)):
            return data
        error = ErrorData(code=CONNECTION_CLOSED, message=_NOT_KEPT)
        return _encoded(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))


def is_of_answer(event_id: str) -> bool:
    """True if it looks like the id of an event of a request's stream."""
    return event_id.startswith(_ANSWER)


def _encoded(message: JSONRPCMessage) -> bytes | None:
    """As the SDK sends it; None if that is impossible."""
    try:
        text = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        return None
    long = message.result.get(KEY) if isinstance(message, JSONRPCResponse) else None
    whole = long.put_into(text) if isinstance(long, LongResult) else None
    return text if whole is None else whole.whole()


def header(scope: Scope, wanted: bytes) -> bytes | None:
    """The first value of a header of a request."""
    return next((value for name, value in scope["headers"] if name == wanted), None)
