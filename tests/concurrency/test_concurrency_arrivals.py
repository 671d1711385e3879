"""Connections that are accepted, on real sockets: which of them are taken up, and when."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import select
import socket
import sys
from contextlib import ExitStack
from typing import Any

import pytest
from support.harness import PATIENCE, until

from fastmcp_aggregator.access.listening import listening_socket
from fastmcp_aggregator.concurrency.arrivals import Arrival, Arrivals
from fastmcp_aggregator.concurrency.connections import Connections
from fastmcp_aggregator.concurrency.known_callers import KnownCallers
from fastmcp_aggregator.concurrency.limiter import FairShare

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere asyncio accepts connections")


class Server:
    """Takes connections up, and does nothing with them. `stack` closes what is open in the end."""

    def __init__(self, stack: ExitStack, room: int = 1000, retry_delay: float = 1.0) -> None:
        self.stack = stack
        self.listener = stack.enter_context(listening_socket("127.0.0.1", 0))
        self.listener.listen(1000)
        self.listener.setblocking(False)
        self.shares = FairShare(room, has_reserve=False)
        self.known = KnownCallers(asyncio.get_running_loop().time)
        connections = Connections(self.shares, FairShare(1), asyncio.get_running_loop().time)
        self.arrivals = Arrivals(
            self.listener, connections, lambda host: host, self.known, b"no room", retry_delay=retry_delay
        )
        self.arrived: list[Arrival] = []
        self.taken: list[str] = []
        """From where, in turn."""
        self.turns: list[int] = []
        """How many in each turn of the event loop."""

    def start(self) -> None:
        self.arrivals.start(self.take_up)
        self.stack.callback(self.arrivals.close)

    def take_up(self, arrival: Arrival) -> None:
        self.arrived.append(arrival)
        self.taken.append(self.stack.enter_context(arrival.connection).getpeername()[0])

    async def settle(self, silent: int = 0) -> None:
        """Until so many are left that are not taken up."""
        while not self.shares.taken:
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            while self.shares.taken != silent:
                before = len(self.taken)
                await asyncio.sleep(0)
                self.turns.append(len(self.taken) - before)

    def client(self, sent: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
        client = socket.create_connection(self.listener.getsockname(), source_address=(address, 0))
        client.send(sent)
        return self.stack.enter_context(client)


@pytest.fixture
async def server() -> Any:
    with ExitStack() as stack:
        yield Server(stack)


async def test_a_connection_is_taken_up_when_it_has_sent_something(server: Server) -> None:
    server.start()
    client = server.client()
    await until(lambda: server.shares.taken == 1)
    assert not server.taken
    client.send(b"x")
    await until(lambda: len(server.taken) == 1)
    assert server.shares.taken == 0  # who takes it up has it counted


async def test_half_a_head_is_not_taken_up_before_the_rest_has_come(server: Server) -> None:
    server.start()
    half = server.client(b"POST / HTTP/1.1\r\nhost: x\r\n")
    other = server.client(b"GET / HTTP/1.1\r\n\r\n", "127.0.0.2")
    await until(lambda: server.taken == ["127.0.0.2"])
    half.send(b"a: b\r\n")
    await until(lambda: server.shares.taken == 1)
    half.send(b"\r\n")
    await until(lambda: server.taken == ["127.0.0.2", "127.0.0.1"])
    other.close()


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01", b"get / http", b"A" * 5000, b"GARBAGE\r\n", b"GET / HTTP/1.1\nhost: x\n\n"],
    ids=["TLS", "no method", "too long", "garbage", "bare line feeds"],
)
async def test_what_is_no_head_is_taken_up_to_be_answered_so(sent: bytes, server: Server) -> None:
    server.start()
    server.client(sent)
    await until(lambda: len(server.taken) == 1)


async def test_a_long_head_is_taken_up_though_its_client_sends_no_more(server: Server) -> None:
    server.start()
    client = server.client()
    await until(lambda: server.shares.taken == 1)
    client.send(b"GET / HTTP/1.1\r\na: %b\r\n\r\n" % (b"x" * 5000))
    client.shutdown(socket.SHUT_WR)
    await until(lambda: len(server.taken) == 1)


async def test_half_a_head_whose_rest_cannot_come_is_closed(server: Server) -> None:
    server.start()
    client = server.client(b"POST / HTTP/1.1\r\n")
    await until(lambda: server.shares.taken == 1)
    client.shutdown(socket.SHUT_WR)
    await until(lambda: server.shares.taken == 0)
    assert not server.taken


async def test_one_that_is_left_before_is_closed(server: Server) -> None:
    server.start()
    client = server.client()
    await until(lambda: server.shares.taken == 1)
    client.close()
    await until(lambda: server.shares.taken == 0)
    assert not server.taken


@pytest.mark.parametrize(("ended", "others", "taken"), [(10, 0, 10), (200, 30, 30)])
async def test_of_many_that_wait_those_that_are_left_are_closed(
    server: Server, ended: int, others: int, taken: int
) -> None:
    """And of a few they are taken up: who half-closes a connection may wait for an answer."""
    for _ in range(ended):
        server.client(b"GET /health HTTP/1.1\r\n\r\n").shutdown(socket.SHUT_WR)
    for _ in range(others):
        server.client(b"x", "127.0.0.2")
    server.start()
    await server.settle()
    assert server.taken.count("127.0.0.2") == others
    assert len(server.taken) == taken
    assert server.shares.taken == 0


async def test_one_is_taken_up_in_a_turn_and_by_addresses(server: Server) -> None:
    """Those of an address with many only when they have waited."""
    server.arrivals.stays = math.inf
    for _ in range(60):
        server.client(b"x")
    server.client(b"x", "127.0.0.2")
    server.start()
    await server.settle(silent=60)
    assert server.taken == ["127.0.0.2"]
    server.arrivals.stays = 0.0
    await server.settle()
    assert len(server.taken) == 61
    assert max(server.turns) <= 2


async def test_for_one_that_has_no_room_the_oldest_that_is_silent_is_refused() -> None:
    with ExitStack() as stack:
        server = Server(stack, room=3)
        server.start()
        clients = [server.client() for _ in range(3)]
        assert await asyncio.to_thread(clients[0].recv, 10) == b"no room"
        await server.settle(silent=2)
        clients[1].send(b"x")
        await until(lambda: len(server.taken) == 1)


async def test_where_all_work_one_more_is_refused() -> None:
    with ExitStack() as stack:
        server = Server(stack, room=1)
        server.shares.force_acquire("elsewhere")
        server.start()
        client = server.client()
        assert await asyncio.to_thread(client.recv, 10) == b"no room"
        assert await asyncio.to_thread(client.recv, 10) == b""


async def test_when_none_can_be_accepted_that_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, told = asyncio.get_running_loop(), list[Any]()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    lacking, accept = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))], socket.socket.accept

    def accepting(listener: socket.socket) -> Any:
        if lacking:
            raise lacking.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accepting)
    with ExitStack() as stack:
        server = Server(stack, retry_delay=0.01)
        server.client(b"x")
        server.start()
        await until(lambda: len(server.taken) == 1)
    assert [error.errno for error in told] == [errno.EMFILE]


async def test_at_the_end_all_are_closed(server: Server) -> None:
    server.start()
    address = server.client().getpeername()
    await until(lambda: server.shares.taken == 1)
    server.stack.close()
    assert server.shares.taken == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_of_a_burst_with_more_than_there_is_room_for_each_is_taken_up_or_told_so() -> None:
    with ExitStack() as stack:
        server = Server(stack, room=500)
        clients = [server.client(b"x" * 100) for _ in range(450)]
        server.start()
        await server.settle()
        answered, _, _ = select.select(clients, [], [], 0)
        assert {client.recv(10) for client in answered} == {b"no room"}
        assert len(answered) + len(server.taken) == 450
        assert len(server.taken) >= 400


async def test_none_is_behind_those_that_wait_of_another_address(server: Server) -> None:
    server.arrivals.stays = math.inf
    for _ in range(600):
        server.client(b"x")
    server.client(b"x", "127.0.0.2")
    server.start()
    await until(lambda: server.taken == ["127.0.0.2"])


@pytest.mark.parametrize("field", ["Authorization: Bearer a", "x-api-key:a"])
async def test_who_is_known_by_a_credential_is_not_behind_those_that_wait_of_its_address(
    server: Server, field: str
) -> None:
    server.arrivals.stays = math.inf
    head = f"POST / HTTP/1.1\r\n{field}\r\n\r\n".encode()
    credential = server.known.credential_in(head)
    assert credential
    server.known.let_in(credential, "ann")
    for number in range(100):
        server.client(head.replace(b"a\r", b"%d\r" % number))
    server.client(head)
    server.start()
    await until(lambda: len(server.taken) == 1)
    assert server.arrived[0].line == ("ann", False)
    assert server.arrived[0].credential == credential


async def test_urgent_bytes_are_nothing_that_is_sent(server: Server) -> None:
    server.start()
    client = server.client()
    client.send(b"!", socket.MSG_OOB)
    await until(lambda: server.shares.taken == 1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not server.taken
    client.send(b"x")
    await until(lambda: len(server.taken) == 1)


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN])
async def test_what_is_wrong_with_one_connection_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    wrong, accept = [OSError(number, os.strerror(number))], socket.socket.accept

    def accepting(listener: socket.socket) -> Any:
        if wrong:
            raise wrong.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accepting)
    with ExitStack() as stack:
        server = Server(stack, retry_delay=math.inf)
        server.client(b"x")
        server.start()
        await until(lambda: len(server.taken) == 1)


async def test_for_those_that_come_and_leave_no_other_is_closed() -> None:
    with ExitStack() as stack:
        server = Server(stack, room=100)
        server.start()
        silent = server.client()
        await server.settle(silent=1)
        for _ in range(900):
            server.client().close()
        waiting = server.client(b"x", "127.0.0.2")
        await until(lambda: server.taken == ["127.0.0.2"])
        await server.settle(silent=1)
        silent.send(b"x")
        await until(lambda: len(server.taken) == 2)
        waiting.close()
