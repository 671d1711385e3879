"""Cutting a byte stream into server-sent events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.children.http.event_streams import EventSplitter, EventTooLarge

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
