"""Writes that go out together."""

from __future__ import annotations

import asyncio

from fastmcp_aggregator.pipe.joined_writes import JoinedWrites


async def test_what_is_written_in_one_turn_goes_out_at_once() -> None:
    written: list[bytes] = []
    writes = JoinedWrites(written.append)
    writes.soon(b"1")
    writes.soon(b"2")
    assert written == []
    await asyncio.sleep(0)
    assert written == [b"12"]
    writes.soon(b"3")
    await asyncio.sleep(0)
    assert written == [b"12", b"3"]


async def test_what_cannot_wait_goes_out_after_what_was_kept() -> None:
    written: list[bytes] = []
    writes = JoinedWrites(written.append)
    writes.now(b"1")
    writes.soon(b"2")
    writes.now(b"3")
    assert written == [b"1", b"23"]
    await asyncio.sleep(0)
    assert written == [b"1", b"23"]


async def test_not_much_is_kept() -> None:
    written: list[bytes] = []
    writes = JoinedWrites(written.append)
    for _ in range(100):
        writes.soon(b"x" * 1024)
    assert 0 < len(b"".join(written)) < 100 * 1024
    await asyncio.sleep(0)
    assert b"".join(written) == b"x" * 100 * 1024
