"""Cutting a byte stream into lines."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.pipe.lines import EDGE, ENDLESS_FACTOR, LineSplitter

KIB = 1024
MIB = 1024 * KIB

CHUNKS = st.lists(st.lists(st.sampled_from([b"\n", b"\n\n", b"a", b"\r", b"\0", b"\xff\xfe", b"word"])).map(b"".join))
LIMITS = st.integers(min_value=0, max_value=12)


def lines_of(splitter: LineSplitter, chunks: Iterable[bytes]) -> list[bytes]:
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()


@given(CHUNKS)
def test_the_lines_do_not_depend_on_how_the_stream_is_cut_into_chunks(chunks: list[bytes]) -> None:
    *whole, rest = b"".join(chunks).split(b"\n")
    assert lines_of(LineSplitter(KIB), chunks) == whole + ([rest] if rest else [])


@given(CHUNKS, LIMITS)
def test_exactly_the_lines_over_the_limit_are_left_out(chunks: list[bytes], limit: int) -> None:
    *whole, rest = b"".join(chunks).split(b"\n")
    pieces = whole + ([rest] if rest else [])
    assert lines_of(LineSplitter(limit), chunks) == [piece for piece in pieces if len(piece) <= limit]


@given(CHUNKS, LIMITS)
def test_the_head_of_each_line_over_the_limit_is_told_once(chunks: list[bytes], limit: int) -> None:
    heads: list[bytes] = []
    lines_of(LineSplitter(limit, lambda head, _: heads.append(head)), chunks)
    oversized = [piece for piece in b"".join(chunks).split(b"\n") if len(piece) > limit]
    assert len(heads) == len(oversized)
    assert all(line.startswith(head) and len(head) > limit for head, line in zip(heads, oversized, strict=True))


@pytest.mark.parametrize("size", [1, 100, EDGE, EDGE + 1, 10_000])
@pytest.mark.parametrize("limit", [10, EDGE, 1000])
def test_the_head_is_the_beginning_of_the_line_as_far_as_it_is_known_when_the_limit_is_passed(
    size: int, limit: int
) -> None:
    heads: list[bytes] = []
    line = bytes(number % 200 + 20 for number in range(5000))
    lines_of(
        LineSplitter(limit, lambda head, _: heads.append(head)), [line[i : i + size] for i in range(0, len(line), size)]
    )
    (head,) = heads
    assert line.startswith(head)
    assert min(limit, EDGE) <= len(head) <= EDGE


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_end_of_an_oversized_line_is_told_when_it_has_come(size: int) -> None:
    tails: list[bytes | None] = []
    line = bytes(number % 200 + 20 for number in range(2500)) + b"\n"
    splitter = LineSplitter(1000, lambda _, tail: tails.append(tail))
    lines_of(splitter, [line[i : i + size] for i in range(0, len(line), size)])
    assert tails == [line[:-1][-EDGE:]]


def test_a_line_that_goes_on_and_on_is_told_once_and_without_an_end() -> None:
    told: list[tuple[bytes, bytes | None]] = []
    splitter = LineSplitter(100, lambda head, tail: told.append((head, tail)))
    for _ in range(10 * ENDLESS_FACTOR):
        splitter.feed(b"x" * 100)
    assert told == [(b"x" * 200, None)]
    assert splitter.feed(b"\nnext\n") == [b"next"]
    assert len(told) == 1


def test_a_line_that_is_not_long_enough_for_that_is_not_taken_for_an_endless_one() -> None:
    tails: list[bytes | None] = []
    splitter = LineSplitter(100, lambda _, tail: tails.append(tail), endless_from=1000)
    for _ in range(9):
        splitter.feed(b"x" * 100)
    assert (splitter.feed(b"y\nnext\n"), tails) == ([b"next"], [b"x" * 255 + b"y"])


@given(st.binary(), st.integers(min_value=1, max_value=8))
def test_any_bytes_come_out_as_they_went_in(stream: bytes, size: int) -> None:
    chunks = [stream[i : i + size] for i in range(0, len(stream), size)]
    lines = lines_of(LineSplitter(KIB), chunks)
    assert b"\n".join(lines) == stream.removesuffix(b"\n")


def test_a_line_is_given_out_as_soon_as_its_newline_has_come() -> None:
    splitter = LineSplitter(KIB)
    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.feed(b"o") == []
    assert splitter.feed(b"\n") == [b"two"]


def test_the_end_gives_out_what_stands_after_the_last_newline_and_only_once() -> None:
    splitter = LineSplitter(KIB)
    splitter.feed(b"one\nrest")
    assert splitter.end() == [b"rest"]
    assert splitter.end() == []


def test_the_end_gives_out_nothing_after_a_last_newline_or_an_oversized_rest() -> None:
    heads: list[bytes] = []
    splitter = LineSplitter(4, lambda head, _: heads.append(head))
    splitter.feed(b"one\n")
    assert splitter.end() == []
    splitter.feed(b"much too long")
    assert splitter.end() == []
    assert len(heads) == 1


def test_a_line_of_exactly_the_limit_is_kept() -> None:
    heads: list[bytes] = []
    splitter = LineSplitter(4, lambda head, _: heads.append(head))
    assert splitter.feed(b"1234\n12345\n") == [b"1234"]
    assert heads == [b"12345"]


@pytest.mark.parametrize("size", [8, 100, 4 * KIB, 64 * KIB, 1000 * KIB])
def test_an_endless_line_costs_no_more_memory_than_the_limit_and_the_next_line_is_intact(size: int) -> None:
    limit = 256 * KIB
    splitter = LineSplitter(limit)
    tracemalloc.start()
    try:
        for number in range(max(2 * limit // size, 4)):
            splitter.feed(number.to_bytes(8, "big").replace(b"\n", b" ")[-4:] * (size // 4))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * limit + 4 * size
    assert splitter.feed(b"the end\nnext\n") == [b"next"]


def test_the_bytes_copied_grow_with_the_length_of_a_line_and_not_with_its_square() -> None:
    chunk = b"x" * KIB
    copied = {length: bytes_allocated(LineSplitter(8 * MIB), chunk, length // KIB) for length in (MIB, 4 * MIB)}
    assert copied[MIB] >= MIB, "the measure sees what is kept"
    assert copied[4 * MIB] < 6 * copied[MIB]


def bytes_allocated(splitter: LineSplitter, chunk: bytes, count: int) -> int:
    """The sum of what each feed takes at its peak beyond what was held before it."""
    total = 0
    tracemalloc.start()
    try:
        for data in (*[chunk] * count, b"\n"):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            splitter.feed(data)
            total += tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    return total
