"""The server's end of a connection, as uvicorn runs it."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from support.harness import until
from uvicorn.server import ServerState

from fastmcp_aggregator.concurrency.arrivals import Arrival
from fastmcp_aggregator.concurrency.connections import HEAD_BOUND, Connections
from fastmcp_aggregator.concurrency.known_callers import KnownCallers
from fastmcp_aggregator.concurrency.limiter import FairShare
from fastmcp_aggregator.front.http.client_connection import ClientConnection, Reads, WholeResponses
from fastmcp_aggregator.front.http.connection import HAS_BODY, WHOLE_RESPONSE
from fastmcp_aggregator.front.http.gate import CONNECTION

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n"


class Socket(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connected(
    app: Any, reads: Reads | None = None, has_left: Callable[[Any], bool] = lambda _: False, **more: Any
) -> tuple[Socket, ClientConnection]:
    config = uvicorn.Config(WholeResponses(app), lifespan="off", access_log=False)
    config.load()
    connections = Connections(FairShare(10), FairShare(1000), asyncio.get_running_loop().time)
    around: dict[str, Any] = {
        "connections": connections,
        "reads": reads or Reads(),
        "address_of": lambda host: host,
        "has_left": has_left,
        "known": KnownCallers(asyncio.get_running_loop().time),
        **more,
    }
    sock, protocol = Socket(), ClientConnection(config, ServerState(), {}, **around)
    protocol.connection_made(sock)
    return sock, protocol


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    length = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": b"ok"})


async def test_an_answer_is_written_at_once() -> None:
    sock, protocol = connected(answer)
    for count in (1, 2):
        protocol.data_received(HEAD + b"body")
        await until(lambda count=count: len(sock.written) >= count)
        await asyncio.sleep(0)
        assert len(sock.written) == count
        assert sock.written[-1].endswith(b"\r\n\r\nok")


async def test_an_answer_is_written_before_its_connection_is_closed() -> None:
    sock, protocol = connected(answer)
    protocol.data_received(HEAD.replace(b"host: a", b"host: a\r\nconnection: close") + b"body")
    await until(lambda: sock.is_closed)
    assert sock.written[0].endswith(b"\r\n\r\nok")


async def test_a_head_does_not_wait_for_a_body_that_is_late() -> None:
    more = asyncio.Event()

    async def late(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await more.wait()
        await send({"type": "http.response.body", "body": b"ok"})

    sock, protocol = connected(late)
    protocol.data_received(HEAD + b"body")
    await until(lambda: bool(sock.written))
    assert sock.written[0].endswith(b"\r\n\r\n")
    more.set()
    await until(lambda: sock.written[1:] == [b"ok"])


async def test_parts_of_a_stream_are_written_as_they_come() -> None:
    more = asyncio.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await more.wait()
        await send({"type": "http.response.body", "body": b"two"})

    sock, protocol = connected(stream)
    protocol.data_received(HEAD + b"body")
    await until(lambda: b"".join(sock.written).endswith(b"3\r\none\r\n"))
    more.set()
    await until(lambda: b"".join(sock.written).endswith(b"3\r\ntwo\r\n0\r\n\r\n"))


def whole(body: bytes = b"ok", headers: Any = ((b"x-a", b"b"),)) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert WHOLE_RESPONSE in scope["extensions"]
        await send({"type": WHOLE_RESPONSE, "status": 404, "headers": headers, "body": body})

    return app


@pytest.mark.parametrize("size", [0, 2, 10_000, 200_000])
async def test_a_whole_response_is_what_two_messages_are(size: int) -> None:
    async def both(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        fields = [(b"x-a", b"b"), (b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 404, "headers": fields})
        await send({"type": "http.response.body", "body": b"x" * size})

    answers = []
    for app in (whole(b"x" * size), both):
        sock, protocol = connected(app)
        for count in (1, 2):
            protocol.data_received(HEAD + b"body")
            await until(lambda count=count, sock=sock: b"".join(sock.written).count(b"HTTP/1.1") == count)
            await until(lambda protocol=protocol: not protocol.tasks)
        assert protocol.server_state.total_requests == 2
        answers.append(b"".join(sock.written))
    assert answers[0] == answers[1]
    assert answers[0].startswith(b"HTTP/1.1 404 Not Found\r\n")


async def test_a_whole_response_is_written_at_once_and_before_its_connection_is_closed() -> None:
    sock, protocol = connected(whole())
    protocol.data_received(HEAD.replace(b"host: a", b"host: a\r\nconnection: close") + b"body")
    await until(lambda: sock.is_closed)
    (written,) = sock.written
    assert written == b"HTTP/1.1 404 Not Found\r\nx-a: b\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


async def test_a_whole_response_waits_until_its_client_reads() -> None:
    sock, protocol = connected(whole())
    protocol.pause_writing()
    protocol.data_received(HEAD + b"body")
    for _ in range(10):
        await asyncio.sleep(0)
    assert sock.written == []
    protocol.resume_writing()
    await until(lambda: b"".join(sock.written).endswith(b"\r\n\r\nok"))


async def test_a_head_is_all_of_a_whole_response_to_who_asks_for_no_more() -> None:
    sock, protocol = connected(whole())
    protocol.data_received(HEAD.replace(b"POST", b"HEAD") + b"body")
    await until(lambda: b"".join(sock.written).endswith(b"content-length: 2\r\n\r\n"))


@pytest.mark.parametrize("value", [b"a\r\nx-b: c", b"\0"])
async def test_a_value_that_is_no_field_is_no_part_of_a_whole_response(value: bytes) -> None:
    sock, protocol = connected(whole(headers=[(b"x-a", value)]))
    protocol.data_received(HEAD + b"body")
    await until(lambda: bool(protocol.tasks) is False)
    assert b"x-b" not in b"".join(sock.written)
    assert b" 404 " not in b"".join(sock.written)


async def test_there_is_one_whole_response() -> None:
    async def twice(scope: Any, receive: Any, send: Any) -> None:
        await whole()(scope, receive, send)
        with pytest.raises(RuntimeError):
            await send({"type": WHOLE_RESPONSE, "status": 200, "headers": [], "body": b"no"})

    sock, protocol = connected(twice)
    protocol.data_received(HEAD + b"body")
    await until(lambda: not protocol.tasks)
    assert b"".join(sock.written).endswith(b"\r\n\r\nok")


async def test_a_request_tells_whether_its_body_has_come() -> None:
    told: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append(HAS_BODY in scope)
        await answer(scope, receive, send)

    sock, protocol = connected(app)
    protocol.data_received(HEAD + b"body")
    await until(lambda: len(sock.written) == 1)
    protocol.data_received(HEAD + b"bo")
    await until(lambda: len(told) == 2)
    protocol.data_received(b"dy")
    await until(lambda: len(sock.written) == 2)
    assert told == [True, False]


@pytest.mark.parametrize("before", [b"", HEAD + b"body"], ids=["first", "second"])
@pytest.mark.parametrize("trailers", [False, True], ids=["head", "trailers"])
async def test_a_request_has_no_more_than_some_fields(before: bytes, trailers: bool) -> None:
    served: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["path"])
        await answer(scope, receive, send)

    def request(fields: int) -> bytes:
        many = b"".join(b"x-%d: y\r\n" % number for number in range(fields))
        if trailers:
            return b"POST /many HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + many + b"\r\n"
        return b"GET /many HTTP/1.1\r\nhost: a\r\n" + many + b"\r\n"

    sock, protocol = connected(app)
    for data in filter(None, (before, request(100))):
        protocol.data_received(data)
        await until(lambda: not protocol.tasks)
    assert served[-1] == "/many"
    assert b"".join(sock.written).count(b" 200 ") == len(served)
    before_it = len(served)
    protocol.data_received(request(3000))
    assert sock.written[-1].startswith(b"HTTP/1.1 431 ")
    assert sock.is_closed
    assert trailers or len(served) == before_it


async def test_a_pipeline_with_an_error_ends_and_no_answer_is_taken_for_that_of_another_request() -> None:
    served: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["path"])
        await asyncio.Event().wait()

    sock, protocol = connected(app)
    get = b"GET /first HTTP/1.1\r\nhost: a\r\n\r\n"
    protocol.data_received(2 * get + b"no HTTP\r\n\r\n")
    await until(lambda: sock.is_closed)
    assert sock.written == []
    await until(lambda: served == ["/first"])
    for task in protocol.tasks:
        task.cancel()


async def test_a_pipeline_of_which_nothing_is_answered_ends_once_too_much_waits() -> None:
    async def app(*_: Any) -> None:
        await asyncio.Event().wait()

    sock, protocol = connected(app)
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 2000)
    assert not sock.is_closed
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 1000)
    assert sock.is_closed
    assert len(protocol.pipeline) == 16
    for task in protocol.tasks:
        task.cancel()


@pytest.mark.parametrize(
    ("requests", "field", "cuts", "waiting"),
    [
        (500, 1, [], 16),
        (500, 1, [b"%d HTTP" % number for number in range(70, 500, 70)], 16),
        (500, 1, [b"17 HTTP"], 16),  # of the first whose head may not be read yet
        (500, 1, [b"\r\nbodyPOST /17 "], 17),  # in the blank line before that
        (30, 2200, [], 16),
    ],
)
async def test_of_a_pipeline_without_end_no_more_is_parsed_than_may_wait_and_all_is_answered_in_order(
    requests: int, field: int, cuts: list[bytes], waiting: int
) -> None:
    served: list[str] = []
    most = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal most
        most = max(most, len(protocol.pipeline))
        served.append(scope["path"])
        await answer(scope, receive, send)

    sock, protocol = connected(app)
    rest = b"host: a\r\nx: %b\r\ncontent-length: 4\r\n\r\nbody" % (b"y" * field)
    text = b"".join(b"POST /%d HTTP/1.1\r\n%b" % (number, rest) for number in range(requests))
    ends = [0, *map(text.index, cuts), len(text)]
    for begin, end in itertools.pairwise(ends):
        protocol.data_received(text[begin:end])
    assert len(protocol.pipeline) == waiting
    assert served == []
    await until(lambda: b"".join(sock.written).count(b" 200 ") == requests)
    assert served == [f"/{number}" for number in range(requests)]
    assert most <= waiting
    assert not sock.is_closed
    assert not protocol.held


@pytest.mark.parametrize(("fields", "kept_apart"), [(0, {"line": ("another", True)}), (100, {"line": ("", False)})])
async def test_what_many_connections_bring_at_once_is_parsed_by_and_by_and_addresses_and_new_ones_take_turns(
    fields: int, kept_apart: dict[str, Any]
) -> None:
    served: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["path"])
        await answer(scope, receive, send)

    head = b"GET /%d HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * fields + b"\r\n"
    reads = Reads()
    floods = [connected(app, reads)[1] for _ in range(40)]
    for flood in floods:
        flood.data_received(b"".join(head % number for number in range(10)))
    assert 0 < len([flood for flood in floods if flood.tasks]) <= 4
    sock, other = connected(app, reads)
    for name, value in kept_apart.items():
        setattr(other, name, value)
    other.data_received(b"GET /other HTTP/1.1\r\nhost: a\r\n\r\n")
    for _ in range(2):
        await asyncio.sleep(0)
    assert other.cycle
    assert len([flood for flood in floods if flood.cycle]) <= 12
    await until(lambda: len(served) == 401)
    assert b"".join(sock.written).count(b" 200 ") == 1
    assert not reads._waiting
    await asyncio.sleep(0)
    assert not reads._spent


async def test_of_a_client_that_has_left_while_many_wait_nothing_is_read_unless_it_was_answered_before() -> None:
    have_left = False
    sock, protocol = connected(answer, has_left=lambda _: have_left)
    protocol.data_received(HEAD + b"body")
    await until(lambda: bool(sock.written))
    have_left = True
    protocol.data_received(HEAD + b"body")
    await until(lambda: len(sock.written) == 2)
    sock, protocol = connected(answer, has_left=lambda _: have_left)
    protocol.data_received(HEAD + b"body")
    assert sock.is_closed
    assert protocol.cycle is None


async def test_empty_lines_before_a_request_are_parsed_at_once() -> None:
    sock, protocol = connected(answer)
    protocol.data_received(b"\r\n" * 3000 + HEAD + b"body" + b"\r\n" * 3000 + HEAD + b"body")
    assert not protocol.held
    await until(lambda: b"".join(sock.written).count(b" 200 ") == 2)


@pytest.mark.parametrize(
    ("has_answered", "waits", "told"), [(False, False, 1), (False, True, 1), (True, True, 1), (True, False, 0)]
)
async def test_a_connection_that_is_closed_for_another_is_told_so_if_it_may_wait_for_an_answer(
    has_answered: bool, waits: bool, told: int
) -> None:
    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if len(begun) == has_answered:
            scope[CONNECTION].give_way(turn)
            await turn
        begun.append(scope)
        await answer(scope, receive, send)

    begun = list[Any]()
    sock, protocol = connected(app)
    for _ in range(has_answered + waits):
        protocol.data_received(HEAD + b"body")
        await until(lambda: len(begun) == 1 or not has_answered)
        await asyncio.sleep(0)
    before = len(sock.written)
    protocol.refuse()
    assert len(sock.written) == before + told
    assert sock.is_closed
    assert not told or b" 503 " in sock.written[-1]
    turn.set_result(None)


async def test_who_is_let_in_is_known_by_what_a_connection_has_brought_until_it_is_refused() -> None:
    known, holder = KnownCallers(asyncio.get_running_loop().time), "ann"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[CONNECTION].holder = holder
        await answer(scope, receive, send)

    for who, others in [("ann", "bob"), ("", "ann")]:
        arrival = Arrival(socket.socket(), "", b"")
        arrival.credential = known.credential_in(b"POST / HTTP/1.1\r\nX-API-Key: a\r\n\r\n")
        sock, protocol = connected(app, known=known, arrival=arrival)
        holder = who
        protocol.data_received(HEAD + b"body")
        await until(lambda sock=sock: bool(sock.written))
        holder = others
        protocol.data_received(HEAD + b"body")
        await until(lambda sock=sock: len(sock.written) == 2)
        assert known.caller_of(arrival.credential) == (who or None)
        arrival.abort()


@pytest.mark.parametrize("holders", [[""], ["ann", ""]])
async def test_who_is_refused_is_not_in_the_line_of_a_caller_any_longer(holders: list[str]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[CONNECTION].holder = holders[len(sock.written)]
        await answer(scope, receive, send)

    arrival = Arrival(socket.socket(), "", b"")
    arrival.line = "ann", False
    sock, protocol = connected(app, arrival=arrival)
    for count, holder in enumerate(holders, 1):
        protocol.data_received(HEAD + b"body")
        await until(lambda count=count: len(sock.written) == count)
        assert protocol.line == (holder, False)
    arrival.abort()


async def test_a_body_in_many_small_chunks_is_parsed_by_and_by_and_whoever_brings_none_goes_first() -> None:
    got: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        got.append(size)
        await answer(scope, receive, send)

    reads = Reads()
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    floods = [connected(app, reads)[1] for _ in range(20)]
    for flood in floods:
        flood.data_received(head + b"1\r\nx\r\n" * 20_000)
    assert len(floods[0].cycle.body) < 2000
    _, other = connected(app, reads)
    other.data_received(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody")
    for _ in range(3):
        await asyncio.sleep(0)
    assert other.cycle
    assert len([flood for flood in floods if flood.cycle]) < 5
    for flood in floods:
        flood.data_received(b"2\r\nyz\r\n0\r\n\r\n")
    await until(lambda: len(got) == 21)
    assert sorted(got) == [4] + [20_002] * 20


@pytest.mark.parametrize(
    ("behind", "more"), [(b"", b"1\r\nx\r\n"), (b"0\r\n\r\n", b"\r\n"), (b"0\r\n\r\n" + HEAD[:20], b"x")]
)
async def test_a_connection_that_is_answered_while_its_body_waits_has_no_request_once_that_is_parsed(
    behind: bytes, more: bytes
) -> None:
    held: list[int] = []

    async def refuse(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})
        held.append(len(protocol.held))

    reads, now = Reads(), 0.0
    sock, protocol = connected(refuse, reads)
    connections = protocol._connections
    connections._clock = lambda: now
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    protocol.data_received(head + b"1\r\nx\r\n" * 20_000 + behind)
    await until(lambda: bool(held) and not protocol.held)
    assert held[0]
    for _ in range(3):
        now += HEAD_BOUND / 3
        connections.end_overdue()
        assert not sock.is_closed
        reads.take(b"x" * 20_000)
        protocol.data_received(more)
        assert protocol.held
        await until(lambda: not protocol.held)
    now += 1
    connections.end_overdue()
    assert sock.is_closed


@pytest.mark.parametrize("second", [b"", b"body"])
async def test_a_connection_whose_next_request_waits_for_its_turn_has_one(second: bytes) -> None:
    """Behind a request that is answered while the other has come, and perhaps not all of it."""
    served: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["path"])
        await receive()
        if len(served) == 1:
            await answer(scope, receive, send)
        else:
            await asyncio.Event().wait()

    sock, protocol = connected(app)
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    protocol.data_received(head + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n" + HEAD + second)
    await until(lambda: len(served) == 2 and not protocol.held)
    protocol._connections._clock = lambda: asyncio.get_running_loop().time() + 2 * HEAD_BOUND
    protocol._connections.end_overdue()
    assert not sock.is_closed
    for task in protocol.tasks:
        task.cancel()


def after_others() -> Reads:
    """In a turn in which others have brought as much as is parsed."""
    reads = Reads()
    assert reads.take(b"x" * 20_000)
    return reads


async def test_what_comes_behind_what_waits_keeps_its_place() -> None:
    served: list[tuple[str, bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        served.append((scope["path"], message["body"]))

        async def again() -> Any:
            return message

        await answer(scope, again, send)

    sock, protocol = connected(app, after_others())
    text = b"".join(b"POST /%d HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbod%d" % (n, n) for n in range(9))
    protocol.data_received(text[:-70])
    protocol.data_received(text[-70:])
    await until(lambda: b"".join(sock.written).count(b" 200 ") == 9)
    assert served == [(f"/{number}", b"bod%d" % number) for number in range(9)]


async def test_a_connection_that_is_lost_or_brings_too_much_before_its_turn_is_not_parsed() -> None:
    several = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 3
    sock, protocol = connected(answer, after_others())
    protocol.data_received(several)
    protocol.connection_lost(None)
    await asyncio.sleep(0)
    assert not protocol.tasks
    sock, protocol = connected(answer, after_others())
    protocol.data_received(several)
    for _ in range(5):
        protocol.data_received(b"x" * 256 * 1024)
    assert sock.is_closed
    await asyncio.sleep(0)
    assert not protocol.tasks
