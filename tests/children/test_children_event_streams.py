"""Cutting a byte stream into server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.harness import until
from support.virtual_time import VirtualTimeLoop

from fastmcp_aggregator.children.http.event_streams import (
    BoundedEvents,
    EventSplitter,
    EventTooLarge,
    Unfinished,
    read_body,
)
from fastmcp_aggregator.children.http.large_messages import LargeMessages
from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure

BYTES = st.binary(max_size=8) | st.sampled_from([b"\n", b"\r", b"\r\n", b"data: x", b"id: 1", b": ping", b"\n\n"])


def fed(chunks: list[bytes], limit: int = 10_000) -> list[bytes]:
    splitter = EventSplitter(limit)
    return [event for chunk in chunks for event in splitter.feed(chunk)]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n"])
def test_an_event_ends_at_a_blank_line_of_any_spelling(end: bytes) -> None:
    events = fed([b"data: 1" + end + b"data: 2" + end + b"data"])
    assert events == [b"data: 1" + end, b"data: 2" + end]


def test_a_line_break_of_two_bytes_is_one() -> None:
    assert fed([b"data: 1\r\ndata: 2\r\n"]) == []


@given(st.lists(BYTES))
def test_nothing_is_lost_or_changed_however_the_bytes_are_cut(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    assert whole.startswith(b"".join(fed(chunks)))
    marked = [whole[i : i + 1] for i in range(len(whole))] + [b"\n\n\n"]
    assert b"".join(fed(marked)) in (whole + b"\n\n", whole + b"\n\n\n")


@given(st.integers(1, 50), st.integers(1, 10))
def test_an_event_is_too_large_from_one_byte_over_the_limit(limit: int, size: int) -> None:
    event = b"x" * limit + b"\n\n"
    pieces = [event[i : i + size] for i in range(0, len(event), size)]
    assert fed(pieces, limit + 2) == [event]
    with pytest.raises(EventTooLarge):
        fed(pieces, limit + 1)


def test_the_events_before_one_that_is_too_large_are_given() -> None:
    events = EventSplitter(12).feed(b"data: 1\n\n" + b"x" * 20)
    assert next(events) == b"data: 1\n\n"
    with pytest.raises(EventTooLarge):
        next(events)


@pytest.mark.parametrize("event", [b"id: 7\ndata: x\n\n", b"data: x\nid:7\n\n", b"data: x\r\nid\r\n\r\n"])
def test_an_id_makes_a_stream_resumable(event: bytes) -> None:
    splitter = EventSplitter(100)
    assert not splitter.is_resumable
    list(splitter.feed(event))
    assert splitter.is_resumable


def test_an_id_inside_the_data_does_not() -> None:
    splitter = EventSplitter(100)
    list(splitter.feed(b'data: {"id: 1"}\nidle: x\n\n'))
    assert not splitter.is_resumable


class Chunks(httpx2.AsyncByteStream):
    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def read(chunks: Sequence[bytes]) -> tuple[list[bytes], float]:
    """The events that are passed on of a response that comes at once, and after how many seconds they are read."""
    loop = VirtualTimeLoop()

    async def events() -> list[bytes]:
        response = httpx2.Response(200, stream=Chunks(chunks))
        return [event async for event in BoundedEvents(response, 10**9, LargeMessages(), Unfinished(10**9))]

    try:
        began = loop.time()
        return loop.run_until_complete(events()), loop.time() - began
    finally:
        loop.close()


@pytest.mark.parametrize(
    "other", [b": ping\n\n", b"\n\n", b"event: x\n\n", b"data: \n\n", b"data: 5\n\n", b"id: 7\ndata:\n\n"]
)
def test_what_is_no_message_is_read_ever_more_slowly(other: bytes) -> None:
    message = b'data: {"jsonrpc": "2.0"}\n\n'
    assert read([message] * 20_000) == ([message] * 20_000, 0)
    assert read([other * 100, message])[1] == 0
    events, seconds = read([other * 1000] * 20 + [message])
    assert events[-1] == message
    assert 90 < seconds < 100


def test_pieces_of_an_event_are_read_ever_more_slowly() -> None:
    events, seconds = read([b"data: {", *[b"x"] * 5000, b"}\n\n"])
    assert events == [b"data: {" + b"x" * 5000 + b"}\n\n"]
    assert 15 < seconds < 25


def test_comments_go_no_further() -> None:
    assert read([b": ping\n\n: pong\n\ndata: {}\n\n: ping\n\n"])[0] == [b"data: {}\n\n"]


def test_a_body_in_very_small_chunks_is_read_slowly_and_whole() -> None:
    loop = VirtualTimeLoop()
    try:
        response = httpx2.Response(200, stream=Chunks([b"x"] * 5000))
        assert loop.run_until_complete(read_body(response, 10_000)) == b"x" * 5000
        assert 15 < loop.time() < 25
    finally:
        loop.close()


class NeverWhole(httpx2.AsyncByteStream):
    """So many bytes, and no end."""

    def __init__(self, length: int) -> None:
        self._length = length

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"data: [" + b"x" * (self._length - 7)
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_answers_that_have_not_come_whole_are_bounded_together(is_stream: bool) -> None:
    unfinished = Unfinished(1000)

    async def answer(length: int, limit: int = 600) -> HttpFailure | None:
        response = httpx2.Response(200, stream=NeverWhole(length))
        if not is_stream:
            try:
                await read_body(response, limit, unfinished)
            except HttpFailed as error:
                return error.failure
        events = BoundedEvents(response, limit, LargeMessages(), unfinished)
        async for _ in events:
            pass
        return events.failure

    waiting = asyncio.create_task(answer(600))
    await until(lambda: unfinished._left == 400)
    failure = await answer(500)
    assert failure is not None
    assert failure.reason == "response too large beside others of this server that have not come whole"
    beside = asyncio.create_task(answer(400))
    await until(lambda: unfinished._left == 0)
    for task in (waiting, beside):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert unfinished._left == 1000
