"""Server-sent events and response bodies of remote children, read up to a size limit, and no faster than there are
messages in them.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Awaitable, Iterator
from itertools import islice
from typing import TypeVar

import anyio
import httpx2

from fastmcp_aggregator.children.http.failures import of_exception, too_large, too_many_parts, too_much_at_once
from fastmcp_aggregator.children.http.large_messages import LARGE, LargeMessages
from fastmcp_aggregator.children.session.parts import in_place_of, looking_for_parts
from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure
from fastmcp_aggregator.concurrency.waits import in_turns
from fastmcp_aggregator.protocol import raw_json

T = TypeVar("T")
_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_MOST_LINES = 10_000
"""Lines of one event that is long; the SDK takes one after the other."""
_MESSAGE = re.compile(rb"(?:\A|[\r\n])data:[ \t]*[{\[]")
"""The prefix of the data of a message."""
_FIELD = re.compile(rb"(?:\A|[\r\n])(?:data|event|id|retry)")
_SMALL = 256
"""Bytes of a chunk that costs more than what is in it."""
_AT_ONCE, _PER_SECOND = 1000, 200
"""Small chunks, or events that are no messages, of one response: as many as notifications pass."""
_MESSAGE_TYPES = (b"", b"message")
_ID_LINES = tuple(b"id" + end for end in (b":", b"\r", b"\n"))


class Unfinished:
    """The bytes of answers that have not come whole, of all requests to one server: `limit`, at most."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def resize(self, held: int, size: int) -> int:
        """Hold `size` bytes in place of those that are held; returns them.

        Raises:
            HttpFailed: there is no room for more.
        """
        if size - held > max(0, self._left):
            raise HttpFailed(too_much_at_once())
        self._left -= size - held
        return size


async def read_body(response: httpx2.Response, limit: int, unfinished: Unfinished | None = None) -> bytes:
    """Read the whole body, and close the response.

    Raises:
        HttpFailed: it has more than `limit` bytes, or would cost too much to parse, or there are too many `unfinished`.
        httpx2.TransportError: the connection broke.
    """
    body = await read_start(response, limit, unfinished)
    if len(body) > limit:
        raise HttpFailed(too_large(limit))
    if await in_turns(looking_for_parts(body)):
        raise HttpFailed(too_many_parts())
    return body


async def read_start(response: httpx2.Response, limit: int, unfinished: Unfinished | None = None) -> bytes:
    """Read the body until it has more than `limit` bytes, and close the response.

    Raises:
        HttpFailed: there are too many bytes `unfinished`.
        httpx2.TransportError: the connection broke.
    """
    start, pace, held = bytearray(), Throttle(), 0
    try:
        async for chunk in chunks_of(response):
            start += chunk
            if len(start) > limit:
                break
            if unfinished is not None:
                held = unfinished.resize(held, len(start))
            if len(chunk) < _SMALL:
                await pace.after(1)
    finally:
        if unfinished is not None:
            unfinished.resize(held, 0)
        await response.aclose()
    return bytes(start)


def chunks_of(response: httpx2.Response) -> AsyncIterator[bytes]:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    return aiter(response.stream)


class Throttle:
    """Has something done more slowly if it is done very often: only the server that has it done waits."""

    def __init__(self, at_once: int = _AT_ONCE, per_second: int = _PER_SECOND) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._paid_until = -math.inf

    async def after(self, count: int) -> None:
        """Wait until so many more may have come."""
        now = asyncio.get_running_loop().time()
        self._paid_until = max(self._paid_until, now - self._at_once / self._per_second) + count / self._per_second
        if self._paid_until > now:
            await asyncio.sleep(self._paid_until - now)


class EventTooLarge(Exception):
    """One event has more bytes than the limit."""


class EventSplitter:
    """Holds back the bytes of an event until it is complete. Linear in the bytes it is fed."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending = bytearray()
        self.is_resumable = False
        """True if an event had an id, with which the stream can be asked for again."""

    @property
    def pending(self) -> int:
        """Bytes that are held back."""
        return len(self._pending)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The complete events up to and with this chunk.

        Raises:
            EventTooLarge: after the events before the one that is.
        """
        start = max(0, len(self._pending) - 3)
        self._pending += chunk
        begin = 0
        for end in [found.end() for found in _EVENT_END.finditer(self._pending, start)]:
            if end - begin > self._limit:
                raise EventTooLarge
            yield self._event(begin, end)
            begin = end
        del self._pending[:begin]
        if len(self._pending) > self._limit:
            raise EventTooLarge

    def _event(self, begin: int, end: int) -> bytes:
        with memoryview(self._pending) as pending:
            event = bytes(pending[begin:end])
        self.is_resumable = self.is_resumable or _has_id(event)
        return event


def _has_id(event: bytes) -> bool:
    """True if a line of the event gives it an id. A regular expression takes ten times as long; to look for a single
    character, a tenth.
    """
    if event.startswith(_ID_LINES):
        return True
    if len(event) > LARGE:
        return any(event.startswith(_ID_LINES, begin) for begin in _line_begins(event))
    return any(
        before + b"id" in event and any(before + line in event for line in _ID_LINES) for before in (b"\n", b"\r")
    )


def _line_begins(event: bytes) -> Iterator[int]:
    """The starts of lines, but for the first."""
    for end in (b"\n", b"\r"):
        begin = event.find(end) + 1
        while begin:
            yield begin
            begin = event.find(end, begin) + 1


class StreamBreaker:
    """Ends a response from another task."""

    def __init__(self) -> None:
        self.is_set = False
        self._scope = anyio.CancelScope()

    def set(self) -> None:
        """End the response, which may be waited for, or for more of it."""
        self.is_set = True
        self._scope.cancel()

    async def until_set(self, awaited: Awaitable[T]) -> T | None:
        """Return what is awaited; None if this is set before."""
        with anyio.CancelScope() as self._scope:
            return await awaited
        return None

    async def next_chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next bytes; None at the end."""
        return None if self.is_set else await self.until_set(anext(chunks, None))


class BoundedEvents:
    """The events of a response. When it ended early, `failure` says why; it is not raised."""

    def __init__(
        self,
        response: httpx2.Response,
        limit: int,
        large: LargeMessages,
        unfinished: Unfinished,
        broken: StreamBreaker | None = None,
    ) -> None:
        self.failure: HttpFailure | None = None
        self._unfinished = unfinished
        self._large = large
        self._response = response
        self._limit = limit
        self._splitter = EventSplitter(limit)
        self._broken = broken or StreamBreaker()

    @property
    def is_resumable(self) -> bool:
        """True if the stream can be asked for again, from its last event on."""
        return self._splitter.is_resumable

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks, pace, held = chunks_of(self._response), Throttle(), 0
        try:
            while (chunk := await self._broken.next_chunk(chunks)) is not None:
                messages = others = 0
                for event in self._splitter.feed(chunk):
                    is_message = _MESSAGE.search(event) is not None
                    messages += is_message
                    others += not is_message
                    if _FIELD.search(event) is not None:  # otherwise it is a comment
                        yield event if len(event) <= LARGE else await _shortened(event, self._large)
                held = self._unfinished.resize(held, self._splitter.pending)
                if others or (len(chunk) < _SMALL and not messages):
                    await pace.after(max(1, others))
        except HttpFailed as error:
            self.failure = error.failure
        except _Unreadable:
            self.failure = too_many_parts()
        except EventTooLarge:
            self.failure = too_large(self._limit)
        except httpx2.TransportError as error:
            self.failure = of_exception(error)
        finally:
            self._unfinished.resize(held, 0)


class _Unreadable(Exception):
    """One event has too many parts, and cannot be told whose it is."""


async def _shortened(event: bytes, large: LargeMessages) -> bytes:
    """The event with what is to be read in place of its message. Others have their turns in between.

    Raises:
        _Unreadable: it would cost too much to parse, and nothing tells what it is.
    """
    if next(islice(_line_begins(event), _MOST_LINES, None), None) is not None:
        raise _Unreadable
    lines = event.splitlines()
    short = None
    if _type_of(lines) in _MESSAGE_TYPES:
        data = b"\n".join([line[5:] for line in lines if line.startswith(b"data:")])
        await asyncio.sleep(0)
        is_readable = not await in_turns(looking_for_parts(data))
        await asyncio.sleep(0)
        try:
            short = large.in_place_of(_decoded(data)) if is_readable else in_place_of(data)
        except raw_json.Malformed:
            raise _Unreadable from None
    kept = [line for line in lines if line.startswith((b"id:", b"event:", b"retry:") if short else b"id:")]
    return b"\n".join([*kept, *([b"data: " + short] if short else []), b"", b""])


def _type_of(lines: list[bytes]) -> bytes:
    """The type of the event, by the last line that gives it."""
    return next((line[6:].strip() for line in reversed(lines) if line.startswith(b"event:")), b"")


def _decoded(data: bytes) -> bytes:
    """The data as readers of events decode them: invalid UTF-8 is replaced."""
    return data if data.isascii() else data.decode(errors="replace").encode()


class EventBody(httpx2.AsyncByteStream):
    """Events as the body of a response that is made up here, and closed with the one that they came from."""

    def __init__(self, events: AsyncIterator[bytes], response: httpx2.Response) -> None:
        self._events = events
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._events

    async def aclose(self) -> None:
        await self._response.aclose()
