"""Whatever bytes come through a pipe: they are cut into lines, and each line is a message or is reported, once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from fuzzing import SCALE, Draw, Watch, draws
from garbage import Garbage, client_messages, server_messages, written
from support.doubles import NoFlowControl

from fastmcp_aggregator.message_streams import MessageReader
from fastmcp_aggregator.pipe.lines import LineSplitter

pytestmark = pytest.mark.fuzz

BATCHES = 40
LINES = 50
GOOD = [*client_messages(modern=False), *client_messages(modern=True), *server_messages()]


class Read:
    """What came of a stream of bytes."""

    def __init__(self, chunks: Iterable[bytes], limit: int) -> None:
        self.lines: list[bytes] = []
        self.junk: list[bytes] = []
        self.oversized: list[bytes] = []
        splitter = LineSplitter(limit, lambda head, _: self.oversized.append(head))
        self._reader = MessageReader(NoFlowControl(), self.junk.append)
        for chunk in chunks:
            self._take(splitter.feed(chunk))
        self._take(splitter.end())
        self._reader.feed_end()

    def _take(self, lines: list[bytes]) -> None:
        self.lines += lines
        self._reader.feed(lines)

    async def messages(self) -> list[dict[str, Any]]:
        return [item.message.model_dump(exclude_unset=True) async for item in self._reader]


def cut(random: Random, stream: bytes) -> list[bytes]:
    """The stream in chunks, of one byte too."""
    cuts = sorted(random.randrange(len(stream)) for _ in range(random.choice((0, 3, 30, 1000))))
    if random.random() < 0.3:
        cuts = sorted({*cuts, *range(min(2000, len(stream)))})
    return [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def read_batch(draw: Draw) -> None:
    random = draw.random
    garbage = Garbage(random, GOOD)
    good = [{"jsonrpc": "2.0", **message} for message in random.choices(GOOD, k=LINES)]
    lines = [line for message in good for line in (garbage.line(), written(message).encode())]
    limit = random.choice((2000, 100_000, 10_000_000))
    read = Read(cut(random, b"\n".join(lines) + b"\n"), limit)
    assert read.lines == [line for line in lines if len(line) <= limit], str(draw)
    assert len(read.oversized) == len(lines) - len(read.lines), str(draw)
    messages = asyncio.run(read.messages())
    assert len(messages) + len(read.junk) + sum(not line.strip() for line in read.lines) == len(read.lines), str(draw)
    delivered = iter(messages)
    assert all(any(message == wanted for message in delivered) for wanted in good), str(draw)


def test_every_line_of_any_stream_is_a_message_or_is_reported_and_no_good_one_is_lost() -> None:
    for draw in draws("early lines", 2):
        read_batch(draw)
    watch = Watch("lines")
    for draw in draws("lines", BATCHES):
        read_batch(draw)
    report = watch.report(BATCHES * SCALE * LINES)
    assert not watch.has_grown, report
