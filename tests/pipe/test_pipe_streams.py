"""JSON-RPC messages over lines, in both directions."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter
from pydantic_core import from_json
from support.doubles import FlowControl

from fastmcp_aggregator.message_streams import MessageReader, MessageWriter, encode, read_message

SAFETY_NET = 10.0
CANCELLED = "notifications/cancelled"


class LineWriter:
    """Keeps what is written; `room` and `is_gone` are the state of its other end."""

    def __init__(self) -> None:
        self.written = b""
        self.room = asyncio.Event()
        self.room.set()
        self.is_gone = False

    @property
    def has_room(self) -> bool:
        return self.room.is_set()

    def write(self, data: bytes) -> None:
        if self.is_gone:
            raise BrokenPipeError
        self.written += data

    async def drained(self) -> None:
        await self.room.wait()
        if self.is_gone:
            raise ConnectionResetError


class Reading:
    """A reader with a valve, and the junk that it has reported."""

    def __init__(self) -> None:
        self.junk: list[bytes] = []
        self.valve = FlowControl()
        self.reader = MessageReader(self.valve, self.junk.append)

    async def methods(self) -> list[str]:
        return [message_of(item).method async for item in self.reader]


def message_of(item: SessionMessage) -> Any:
    return item.message


def line(method: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method}).encode()


def request(request_id: int = 1) -> SessionMessage:
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=request_id, method="ping"))


async def test_messages_come_out_in_the_order_in_which_their_lines_went_in() -> None:
    reading = Reading()
    reading.reader.feed([line("one"), line("two")])
    reading.reader.feed([line("three")])
    reading.reader.feed_end()
    assert await reading.methods() == ["one", "two", "three"]


async def test_every_kind_of_message_is_told_apart() -> None:
    reading = Reading()
    reading.reader.feed(
        [
            b'{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}',
            b'{"jsonrpc":"2.0","method":"n"}',
            b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}',
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}',
        ]
    )
    reading.reader.feed_end()
    kinds = [type(message_of(item)) async for item in reading.reader]
    assert kinds == [JSONRPCRequest, JSONRPCNotification, JSONRPCResponse, JSONRPCError]


async def test_a_line_that_is_no_message_is_reported_and_the_next_one_is_delivered() -> None:
    junk = [b"Listening on stdin", b"{", b"[]", b"42", b'{"jsonrpc":"1.0","method":"m"}', b"\xff\xfe"]
    reading = Reading()
    for bad in junk:
        reading.reader.feed([bad, line("good")])
    reading.reader.feed_end()
    assert await reading.methods() == ["good"] * len(junk)
    assert reading.junk == junk


async def test_a_blank_line_is_passed_over_without_a_word() -> None:
    reading = Reading()
    reading.reader.feed([b"", b"\r", b"  ", line("good")])
    assert message_of(await reading.reader.receive()).method == "good"
    assert reading.junk == []


@given(st.binary().filter(lambda data: b"\n" not in data))
def test_no_bytes_whatever_stop_the_reader(data: bytes) -> None:
    async def read() -> list[str]:
        reading = Reading()
        reading.reader.feed([data, line("good")])
        reading.reader.feed_end()
        return await reading.methods()

    assert asyncio.run(read())[-1] == "good"


async def test_a_reader_that_waits_gets_the_next_message_when_it_comes() -> None:
    reading = Reading()
    waiting = asyncio.create_task(reading.reader.receive())
    while reading.reader._waiter is None:
        await asyncio.sleep(0)
    reading.reader.feed([line("late")])
    assert message_of(await asyncio.wait_for(waiting, SAFETY_NET)).method == "late"


async def test_a_wait_that_was_cancelled_loses_no_message() -> None:
    reading = Reading()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reading.reader.receive(), 0)
    waiting = asyncio.create_task(reading.reader.receive())
    while reading.reader._waiter is None:
        await asyncio.sleep(0)
    reading.reader.feed([line("one")])
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    reading.reader.feed([line("two")])
    first = [] if waiting.cancelled() else [message_of(waiting.result()).method]
    reading.reader.feed_end()
    assert first + await reading.methods() == ["one", "two"]


async def test_the_stream_ends_only_after_what_was_fed_before_the_end() -> None:
    reading = Reading()
    reading.reader.feed([line("last")])
    reading.reader.feed_end()
    assert message_of(await reading.reader.receive()).method == "last"
    with pytest.raises(anyio.EndOfStream):
        await reading.reader.receive()


async def test_the_end_wakes_a_reader_that_waits() -> None:
    reading = Reading()
    waiting = asyncio.create_task(reading.reader.receive())
    while reading.reader._waiter is None:
        await asyncio.sleep(0)
    reading.reader.feed_end()
    with pytest.raises(anyio.EndOfStream):
        await asyncio.wait_for(waiting, SAFETY_NET)


async def test_a_closed_reader_gives_out_nothing_more() -> None:
    reading = Reading()
    reading.reader.feed([line("one")])
    async with reading.reader:
        pass
    with pytest.raises(anyio.EndOfStream):
        await reading.reader.receive()


async def test_a_reader_that_falls_behind_stops_its_pipe_and_lets_it_go_on_when_it_has_caught_up() -> None:
    reading = Reading()
    for _ in range(400):
        reading.reader.feed([line("m")])
    assert reading.valve.asked == ["pause"]
    received = 0
    while reading.valve.asked == ["pause"]:
        await reading.reader.receive()
        received += 1
    assert reading.valve.asked == ["pause", "resume"]
    assert 0 < received < 400, "the pipe goes on before the reader runs dry"


async def test_a_reader_that_keeps_up_never_stops_its_pipe() -> None:
    reading = Reading()
    for _ in range(1000):
        reading.reader.feed([line("m")])
        await reading.reader.receive()
    assert reading.valve.asked == []


async def test_the_pipe_goes_on_even_when_everything_that_stopped_it_was_junk() -> None:
    reading = Reading()
    reading.reader.feed([b"junk"] * 400)
    reading.reader.feed([line("good")])
    assert reading.valve.asked == ["pause"]
    await reading.reader.receive()
    assert reading.valve.asked == ["pause", "resume"]
    assert len(reading.junk) == 400


async def test_a_few_huge_lines_stop_the_pipe_like_many_small_ones() -> None:
    reading = Reading()
    huge = b'{"jsonrpc":"2.0","method":"m","params":{"x":"' + b"x" * 400_000 + b'"}}'
    reading.reader.feed([huge, huge])
    assert reading.valve.asked == []
    reading.reader.feed([huge])
    assert reading.valve.asked == ["pause"]
    await reading.reader.receive()
    assert reading.valve.asked == ["pause", "resume"]
    reading.reader.feed([huge])
    assert reading.valve.asked == ["pause", "resume", "pause"]


def outcome(read: Callable[[bytes], Any], text: bytes) -> str:
    try:
        message = read(text)
    except ValueError:
        return "none"
    return repr((type(message), message, message.model_fields_set))


NUMBERS = ["1", "null", "1.0", "1e400", "NaN", "-0", "true", "123456789012345678901234567890"]
TEXTS = ['"1"', '"x"', '"2.0"', '"\\ud800"']
PARTS = ["{}", "[]", '{"a":1}', '{"code":1,"message":"m"}', '{"code":"1","message":"m"}', '{"code":true,"message":5}']
NAMES = ["id", "method", "params", "result", "error", "jsonrpc", "x"]
MEMBERS = st.tuples(st.sampled_from(NAMES), st.sampled_from(NUMBERS + TEXTS + PARTS))


@given(st.lists(MEMBERS, max_size=6), st.sampled_from(["", '"jsonrpc":"2.0",']))
def test_a_message_is_read_as_the_sdk_reads_it(members: list[tuple[str, str]], head: str) -> None:
    text = ("{" + head + ",".join(f'"{name}":{value}' for name, value in members) + "}").encode()
    assert outcome(read_message, text) == outcome(jsonrpc_message_adapter.validate_json, text)


@pytest.mark.parametrize("text", ["MANY", '{"jsonrpc":"2.0","method":"x","params":{"x":MANY}}'], ids=["none", "one"])
def test_to_read_a_message_takes_hardly_longer_than_to_parse_it(text: str) -> None:
    content = text.replace("MANY", "[" + "[]," * 20_000 + "[]]").encode()

    def read() -> None:
        with suppress(ValueError):
            read_message(content)

    assert cpu_seconds(read) < 5 * cpu_seconds(lambda: from_json(content))


def cpu_seconds(work: Callable[[], object]) -> float:
    """The least of some tries."""
    tries = []
    for _ in range(5):
        began = time.thread_time()
        work()
        tries.append(time.thread_time() - began)
    return min(tries)


async def test_a_message_that_is_not_admitted_is_left_out_and_is_no_junk() -> None:
    junk: list[bytes] = []
    reader = MessageReader(FlowControl(), junk.append, lambda message: message.method != "refused")
    reader.feed([line("refused"), line("one"), line("refused"), b"junk", line("two"), line("refused")])
    reader.feed_end()
    assert [message_of(item).method async for item in reader] == ["one", "two"]
    assert junk == [b"junk"]


@pytest.mark.parametrize("left_out", [b"junk", b"", b'{"jsonrpc":"2.0","method":"refused"}'])
async def test_a_flood_of_lines_that_are_left_out_lets_others_have_their_turn(left_out: bytes) -> None:
    seen: list[bytes] = []
    reader = MessageReader(FlowControl(), seen.append, lambda message: message.method != "refused")
    reader.feed([left_out] * 10_000 + [line("good")])
    reading, turns = asyncio.create_task(reader.receive()), 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert message_of(reading.result()).method == "good"
    assert turns > 100


async def test_a_flood_of_messages_lets_others_have_their_turn() -> None:
    reading = Reading()
    reading.reader.feed([line("one")] * 10_000)
    reading.reader.feed_end()
    taking, turns = asyncio.create_task(reading.methods()), 0
    while not taking.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(taking.result()) == 10_000
    assert turns > 100


@pytest.mark.parametrize(("options", "is_offered"), [({}, False), ({"pauses_after": ()}, True)])
async def test_nothing_is_offered_before_what_a_request_is_about_was_decided(
    options: dict[str, Any], is_offered: bool
) -> None:
    offered: list[bytes] = []
    reader = MessageReader(FlowControl(), lambda _: None, take=lambda line: bool(offered.append(line)), **options)
    lines = [encode(request().message), line("next")]
    for taken in lines:
        receiving = asyncio.create_task(reader.receive())
        await asyncio.sleep(0)
        reader.feed([taken])
        await asyncio.wait_for(receiving, SAFETY_NET)
    assert offered == (lines if is_offered else lines[:1])


async def test_a_message_is_written_as_one_line_without_the_fields_that_were_not_set() -> None:
    outlet = LineWriter()
    message = JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call", params={"name": "a\nb", "x": None})
    await MessageWriter(outlet).send(SessionMessage(message))
    assert outlet.written == encode(message)
    assert outlet.written.endswith(b"\n")
    assert outlet.written.count(b"\n") == 1
    assert json.loads(outlet.written) == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "a\nb", "x": None},
    }


def test_a_message_without_parameters_is_encoded_without_the_key() -> None:
    assert json.loads(encode(JSONRPCNotification(jsonrpc="2.0", method="n"))) == {"jsonrpc": "2.0", "method": "n"}


def test_text_of_any_language_is_encoded_as_utf_8() -> None:
    encoded = encode(JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": "čaj 茶 🍵"}))
    assert "čaj 茶 🍵".encode() in encoded


async def test_what_was_written_can_be_read_back() -> None:
    outlet, reading = LineWriter(), Reading()
    sent = [
        JSONRPCRequest(jsonrpc="2.0", id="x", method="m", params={"a": [1, None, {"b": "č"}]}),
        JSONRPCResponse(jsonrpc="2.0", id="x", result={"ok": True}),
    ]
    for message in sent:
        await MessageWriter(outlet).send(SessionMessage(message))
    reading.reader.feed(outlet.written.splitlines())
    reading.reader.feed_end()
    assert [message_of(item) async for item in reading.reader] == sent


async def test_a_writer_whose_pipe_is_full_suspends_whoever_sends_a_request() -> None:
    outlet = LineWriter()
    outlet.room.clear()
    sending = asyncio.create_task(MessageWriter(outlet).send(request()))
    await asyncio.sleep(0)
    assert not sending.done()
    assert outlet.written == b""
    outlet.room.set()
    await asyncio.wait_for(sending, SAFETY_NET)
    assert outlet.written.count(b"\n") == 1


async def test_a_cancellation_to_a_full_pipe_is_dropped_and_holds_nobody_up() -> None:
    outlet = LineWriter()
    outlet.room.clear()
    cancel = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled"))
    await asyncio.wait_for(MessageWriter(outlet).send(cancel), SAFETY_NET)
    assert outlet.written == b""


async def test_a_cancellation_is_dropped_rather_than_stuck_behind_what_it_is_to_cancel() -> None:
    outlet = LineWriter()
    outlet.room.clear()
    await MessageWriter(outlet).send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=CANCELLED)))
    assert outlet.written == b""
    outlet.room.set()
    await MessageWriter(outlet).send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=CANCELLED)))
    assert json.loads(outlet.written)["method"] == CANCELLED


async def test_any_other_notification_waits_for_room() -> None:
    outlet = LineWriter()
    outlet.room.clear()
    notification = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
    sending = asyncio.create_task(MessageWriter(outlet).send(SessionMessage(notification)))
    await asyncio.sleep(0)
    assert not sending.done()
    outlet.room.set()
    await asyncio.wait_for(sending, SAFETY_NET)
    assert json.loads(outlet.written)["method"] == "notifications/initialized"


async def test_sending_to_a_pipe_whose_other_end_is_gone_raises_broken_resource() -> None:
    outlet = LineWriter()
    outlet.is_gone = True
    with pytest.raises(anyio.BrokenResourceError):
        await MessageWriter(outlet).send(request())


async def test_a_sender_that_waits_for_room_is_told_when_the_other_end_goes() -> None:
    outlet = LineWriter()
    outlet.room.clear()
    sending = asyncio.create_task(MessageWriter(outlet).send(request()))
    await asyncio.sleep(0)
    outlet.is_gone = True
    outlet.room.set()
    with pytest.raises(anyio.BrokenResourceError):
        await asyncio.wait_for(sending, SAFETY_NET)


async def test_sending_on_a_closed_writer_raises_closed_resource() -> None:
    outlet = LineWriter()
    async with MessageWriter(outlet) as writer:
        await writer.send(request())
    with pytest.raises(anyio.ClosedResourceError):
        await writer.send(request(2))
    assert outlet.written.count(b"\n") == 1


class SocketPipe(asyncio.Protocol):
    """One end of a real socket: a valve for a reader, and an outlet for a writer."""

    def __init__(self) -> None:
        self.reader = MessageReader(self, lambda _: None)
        self.rest = b""
        self.pauses = 0
        self.room = asyncio.Event()
        self.room.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.reader.feed(lines)

    def connection_lost(self, exc: Exception | None) -> None:
        self.reader.feed_end()

    def pause_reading(self) -> None:
        self.pauses += 1
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.room.clear()

    def resume_writing(self) -> None:
        self.room.set()

    @property
    def has_room(self) -> bool:
        return self.room.is_set()

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    async def drained(self) -> None:
        await self.room.wait()


async def test_over_a_real_socket_a_reader_that_stands_still_holds_up_the_writer_and_nothing_is_lost() -> None:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    _, source = await loop.create_connection(SocketPipe, sock=near)
    _, sink = await loop.create_connection(SocketPipe, sock=far)
    writer, count, padding = MessageWriter(source), 5000, "x" * 2000

    async def write_all() -> None:
        for number in range(count):
            params = {"number": number, "padding": padding}
            await writer.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="n", params=params)))
        source.transport.close()

    writing = asyncio.create_task(write_all())
    async with asyncio.timeout(SAFETY_NET * 6):
        while source.room.is_set() or not sink.pauses:
            await asyncio.sleep(0)
        assert not writing.done(), "the writer stands still because the reader does"
        numbers = [message_of(item).params["number"] async for item in sink.reader]
        await writing
    assert numbers == list(range(count))
    sink.transport.close()
