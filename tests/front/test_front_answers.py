"""The stream of an answer, and the connections that carry it."""

import asyncio

import pytest
from support.harness import until

from fastmcp_aggregator.front.http.resume.event_store import AnswerStream

LONG = 3600.0


class Connection:
    """Takes events, once it reads."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.offered: list[bytes] = []

    async def deliver(self, event_id: str, data: bytes) -> None:
        self.offered.append(data)
        await self.reads.wait()


@pytest.fixture
def stream() -> AnswerStream:
    return AnswerStream("a", "stream", b"session")


async def test_a_request_is_awaited_until_its_answer_is_read(stream: AnswerStream) -> None:
    connection = Connection()
    carrying = asyncio.create_task(stream.carry(-1, connection.deliver))
    await until(lambda: stream.add(b"progress") and connection.offered)
    stream.leave()
    stream.end()
    awaited = asyncio.create_task(stream.while_awaited(0))
    done, _ = await asyncio.wait({awaited}, timeout=0.01)
    assert not done
    stream.is_answered = True
    connection.reads.set()
    await carrying
    await awaited


async def test_a_request_whose_client_is_gone_is_awaited_for_so_long_only(stream: AnswerStream) -> None:
    stream.leave()
    await stream.while_awaited(0.01)
    assert not stream.is_over


async def test_a_request_whose_client_is_there_is_awaited(stream: AnswerStream) -> None:
    awaited = asyncio.create_task(stream.while_awaited(0.01))
    done, _ = await asyncio.wait({awaited}, timeout=0.05)
    assert not done
    stream.end()
    stream.leave()
    await awaited


async def test_the_newest_connection_carries_on_and_the_others_end(stream: AnswerStream) -> None:
    ended = []
    connections = [Connection(), Connection()]
    for connection in connections:
        connection.reads.set()
    stream.close_response = lambda: asyncio.sleep(0, ended.append("response"))
    first = asyncio.create_task(stream.carry(-1, connections[0].deliver))
    stream.add(b"one")
    await until(lambda: connections[0].offered)
    second = asyncio.create_task(stream.carry(0, connections[1].deliver))
    await first
    stream.add(b"two")
    stream.is_answered = True
    await second
    assert [connection.offered for connection in connections] == [[b"one"], [b"two"]]
    assert ended == ["response"] * 2
