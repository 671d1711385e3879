"""Writes that go out together."""

from __future__ import annotations

import asyncio

from fastmcp_aggregator.pipe.joined_writes import JoinedWrites


class Pipe:
    """Asyncio's end of a pipe."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.written.append(b"end")


async def test_what_is_written_in_one_turn_goes_out_at_once() -> None:
    pipe = Pipe()
    written, writes = pipe.written, JoinedWrites(pipe)
    writes.write(b"1")
    writes.write(b"2")
    assert written == []
    await asyncio.sleep(0)
    assert written == [b"12"]
    writes.write(b"3")
    await asyncio.sleep(0)
    assert written == [b"12", b"3"]


async def test_what_cannot_wait_goes_out_after_what_was_kept() -> None:
    pipe = Pipe()
    written, writes = pipe.written, JoinedWrites(pipe)
    writes.write_now(b"1")
    writes.write(b"2")
    writes.write_now(b"3")
    assert written == [b"1", b"23"]
    await asyncio.sleep(0)
    assert written == [b"1", b"23"]


async def test_not_much_is_kept() -> None:
    pipe = Pipe()
    written, writes = pipe.written, JoinedWrites(pipe)
    for _ in range(100):
        writes.write(b"x" * 1024)
    assert 0 < len(b"".join(written)) < 100 * 1024
    await asyncio.sleep(0)
    assert b"".join(written) == b"x" * 100 * 1024


async def test_what_was_kept_goes_out_before_the_end() -> None:
    pipe = Pipe()
    writes = JoinedWrites(pipe)
    writes.write(b"1")
    writes.close()
    assert pipe.written == [b"1", b"end"]
