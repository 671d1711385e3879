"""The SDK's event store: what is sent to legacy clients, kept for those that lost their connection.

Theory. The SDK stores each event before it sends it. Events are kept as the bytes that go over the wire, so that it is
known how much they take. What does not fit is not kept: there is an error in place of an answer then, so that a client
that comes back for it learns what became of it. FastMCP wraps the store for each session, and its wrapper gathers what
is replayed until all is; so the rest of an answer is not replayed, but delivered on the connection as it comes.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from fastmcp_aggregator.front.http.resume.answers import AnswerStream, Deliver
from fastmcp_aggregator.front.http.resume.event_logs import EventLog, EventLogs

_ANSWER = "a"
_STANDING = "s"
"""Kinds of streams: of one request each, and of what belongs to no request."""
_ANSWERS = (JSONRPCResponse, JSONRPCError)
_NOT_KEPT = "the answer was not kept until the client came back: it is too large, or cannot be sent at all"


@dataclass(slots=True)
class Exchange:
    """One HTTP request, as far as it concerns the events that are sent for it."""

    session_id: bytes
    stream: AnswerStream | None = None
    """On which it is answered."""
    deliver: Deliver | None = None
    """Where events go, if it has come back for them."""


EXCHANGE: ContextVar[Exchange | None] = ContextVar("HTTP request", default=None)
"""The SDK calls the store in the context of the request, and does not name it."""


class KeptEvents(EventStore):
    """Keeps events for `keep` seconds from when their request is over, or, of no request, from when they came."""

    def __init__(self, keep: float) -> None:
        self.logs = EventLogs(keep)

    def find(self, event_id: str, session_id: bytes) -> tuple[EventLog, int] | None:
        """The stream that a client of this session has asked for, and the number of the last event it has had."""
        found = self.logs.find(event_id)
        if found is not None and isinstance(found[0], AnswerStream) and found[0].session_id != session_id:
            return None
        return found

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """See `EventStore`. Without a message it is the event with which a response begins. Never raises."""
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
        """See `EventStore`. The rest of an answer is delivered here; then there is nothing left to follow."""
        exchange = EXCHANGE.get()
        found = self.find(last_event_id, exchange.session_id) if exchange is not None else None
        if exchange is None or exchange.deliver is None or found is None:
            return None
        log, number = found
        if isinstance(log, AnswerStream):
            await log.carry(number, exchange.deliver)
            return None
        for later, data in log.after(number):
            await send_callback(EventMessage(jsonrpc_message_adapter.validate_json(data), log.id_of(later)))
        return log.stream_id

    def _begun(self, stream_id: str) -> str:
        exchange = EXCHANGE.get()
        if exchange is None or exchange.deliver is not None:
            log = self._log(stream_id)
            self.logs.retire(log)
            return log.mark()
        exchange.stream = AnswerStream(_ANSWER, stream_id, exchange.session_id)
        self.logs.open(exchange.stream)
        return exchange.stream.mark()

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
    """Whether it looks like the id of an event of a request's stream."""
    return event_id.startswith(_ANSWER)


def _encoded(message: JSONRPCMessage) -> bytes | None:
    """As the SDK sends it; None if that is impossible."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        return None
