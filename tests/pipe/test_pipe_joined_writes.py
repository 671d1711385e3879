"""Writes that go out together."""

from __future__ import annotations

import asyncio

from fastmcp_aggregator.pipe.joined_writes import JoinedWrites


async def test_what_is_written_in_one_turn_goes_out_at_once() -> None:
    written: list[bytes] = []
    writes = JoinedWrites(written.append)
    writes.add(b"1")
    writes.add(b"2")
    assert written == []
    await asyncio.sleep(0)
    assert written == [b"12"]
    writes.add(b"3")
    await asyncio.sleep(0)
    assert written == [b"12", b"3"]


async def test_it_can_be_written_before() -> None:
    written: list[bytes] = []
    writes = JoinedWrites(written.append)
    writes.add(b"1")
    writes.flush()
    assert written == [b"1"]
    await asyncio.sleep(0)
    assert written == [b"1"]


async def test_not_much_is_kept() -> None:
    written: list[bytes] = []
    writes = JoinedWrites(written.append)
    for _ in range(100):
        writes.add(b"x" * 1024)
    assert 0 < len(b"".join(written)) < 100 * 1024
    await asyncio.sleep(0)
    assert b"".join(written) == b"x" * 100 * 1024


async def test_a_pipe_that_is_lost_is_no_error_of_the_turn() -> None:
    def lost(_: bytes) -> None:
        raise BrokenPipeError

    writes = JoinedWrites(lost)
    writes.add(b"1")
    writes.flush()
