"""The events that are kept for clients that come back, bounded in number, bytes and time."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict

_EVENT_LIMIT = 1000
"""Events kept of one stream, at most; then the oldest are dropped."""
_LOG_LIMIT = 10_000
"""Logs kept that are no longer in use, at most."""
SIZE_LIMIT = 32 * 1024 * 1024
"""Bytes of all events together, at most."""
_SWEEP_PAUSE = 1.0
"""Seconds between two sweeps, at least."""
_NUMBER = re.compile("[0-9]{1,18}")


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


class EventLogs:
    """All logs. One that is no longer in use is kept for `keep` seconds, unless others need its place."""

    def __init__(self, keep: float, limit: int = SIZE_LIMIT) -> None:
        self._keep = keep
        self._limit = limit
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
        """The log in use for a stream."""
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
        """Whether so many bytes fit, once the oldest logs that are no longer in use have made room."""
        if size > self._limit:
            return False
        while self._size + size > self._limit and self._expiries:
            self._forget_oldest()
        return self._size + size <= self._limit

    def has_plenty_of_room(self, size: int) -> bool:
        """Whether so many bytes fit, and leave half of the room free."""
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
        self._sweeping = loop.call_later(max(left, _SWEEP_PAUSE), self._sweep, loop) if self._expiries else None

    def _forget_oldest(self) -> None:
        name, _ = self._expiries.popitem(last=False)
        log = self._by_name.pop(name)
        self._size -= log.size
        if self._by_stream.get(log.stream_id) is log:
            del self._by_stream[log.stream_id]
