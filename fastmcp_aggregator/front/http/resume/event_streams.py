"""Event streams that a client may resume: the latest events of each, and who carries the answer to a request.

Theory. A legacy client may lose the connection on which it waits for an answer, or be told to hang up and to ask for
the rest later; each event has an id, and the client comes back with that of the last one (2025-11-25, transports:
resumability). So the events are kept, and one connection after the other carries them: first the response to the
request itself, which the SDK writes, then the responses to those who come back. Only the newest is listened to.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable

import anyio

_EVENT_LIMIT = 1000
"""Events kept of one stream, at most; then the oldest are dropped."""
_ANSWER_BOUND = 1.0
"""Seconds from the end of the work to its answer, at most. There is none if the session has ended."""

Deliver = Callable[[str, bytes], Awaitable[None]]
"""Sends one event, by its id and its data."""


class EventLog:
    """The latest events of one stream, numbered. An event's id is the name of the log and its number."""

    def __init__(self, kind: str, stream_id: str) -> None:
        self.name = kind + secrets.token_hex(8)
        self.stream_id = stream_id
        """What the SDK knows the stream by."""
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
        """The events that came after this one."""
        return [event for event in self._events if event[0] > number]

    def id_of(self, number: int) -> str:
        """The id of an event."""
        return f"{self.name}.{number}"


class AnswerStream(EventLog):
    """The events of one request of the session with this id."""

    def __init__(self, kind: str, stream_id: str, session_id: bytes) -> None:
        super().__init__(kind, stream_id)
        self.session_id = session_id
        self.is_answered = False
        """Whether the answer has come."""
        self.is_over = False
        """Whether the work on the request is."""
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
        """The work is over."""
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

    async def carry(self, last: int, deliver: Deliver) -> None:
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
                elif self.is_answered or not await self._changes(_ANSWER_BOUND if self.is_over else math.inf):
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
        """Whether anything changes within so many seconds."""
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
