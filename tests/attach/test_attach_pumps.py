"""Sockets in the place of named pipes and of stdin and stdout, as bridges and hubs have them on Windows."""

from __future__ import annotations

import os
import select
import socket
from queue import SimpleQueue
from threading import Event

import pytest
from support.harness import PATIENCE

from fastmcp_aggregator.attach.client_end import PumpedClientEnd
from fastmcp_aggregator.attach.systems import pumps

_GONE, _CANCELLED = "gone", "cancelled"


class End:
    """One end of a pipe of messages in this process, which is as `MessagePipe` demands."""

    def __init__(self, incoming: SimpleQueue[bytes | str], outgoing: SimpleQueue[bytes | str]) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self.closed = Event()

    def read(self) -> bytes:
        message = self._incoming.get(timeout=PATIENCE)
        if isinstance(message, str):
            raise BrokenPipeError(message)
        return message

    def write(self, message: bytes) -> None:
        self._outgoing.put(message)

    def cancel(self) -> None:
        self._incoming.put(_CANCELLED)

    def close(self) -> None:
        self._outgoing.put(_GONE)
        self.closed.set()


def ends() -> tuple[End, End]:
    one: SimpleQueue[bytes | str] = SimpleQueue()
    other: SimpleQueue[bytes | str] = SimpleQueue()
    return End(one, other), End(other, one)


@pytest.fixture
def pair() -> tuple[End, End, socket.socket, socket.socket]:
    """The two ends of a pipe, and the sockets of the client and of the hub on it."""
    client_pipe, hub_pipe = ends()
    client, hub = pumps.of_client(client_pipe), pumps.of_hub(hub_pipe)
    for each in (client, hub):
        each.settimeout(PATIENCE)
    return client_pipe, hub_pipe, client, hub


def test_a_client_that_has_said_its_last_is_still_answered(pair: tuple[End, End, socket.socket, socket.socket]) -> None:
    client_pipe, hub_pipe, client, hub = pair
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    assert hub.recv(100) == b"question"
    assert hub.recv(100) == b""
    answer = os.urandom(3 * pumps.CHUNK)
    hub.settimeout(None)
    with hub:
        hub.sendall(answer[:-1])
        hub.sendall(answer[-1:])
    with client, client.makefile("rb") as file:
        assert file.read() == answer
    assert client_pipe.closed.wait(PATIENCE)
    assert hub_pipe.closed.wait(PATIENCE)


def test_a_client_that_is_gone_is_not_taken_for_one_that_has_said_its_last(
    pair: tuple[End, End, socket.socket, socket.socket],
) -> None:
    client_pipe, hub_pipe, client, hub = pair
    poll = select.poll()
    poll.register(hub, 0)
    client_pipe.close()
    assert poll.poll(PATIENCE * 1000) == [(hub.fileno(), select.POLLHUP)]
    assert hub_pipe.closed.wait(PATIENCE)
    client.close()
    hub.close()


def test_what_a_hub_has_said_before_it_is_gone_is_read(pair: tuple[End, End, socket.socket, socket.socket]) -> None:
    client_pipe, hub_pipe, client, hub = pair
    hub_pipe.write(b"last words")
    hub_pipe.close()
    with client, client.makefile("rb") as file:
        assert file.read() == b"last words"
    assert client_pipe.closed.wait(PATIENCE)
    hub.close()


def test_a_hub_that_closes_a_connection_is_rid_of_it_though_the_client_stays(
    pair: tuple[End, End, socket.socket, socket.socket],
) -> None:
    _, hub_pipe, client, hub = pair
    hub.close()
    assert hub_pipe.closed.wait(PATIENCE)
    assert client.recv(100) == b""
    client.close()


def test_sockets_are_waited_for_like_descriptors() -> None:
    one, other = socket.socketpair()
    poll = pumps.Poll()
    assert poll.poll(0) == []
    poll.register(one.fileno(), pumps.POLLIN | pumps.POLLOUT)
    assert poll.poll(0) == [(one.fileno(), pumps.POLLOUT)]
    other.send(b"x")
    assert poll.poll(None) == [(one.fileno(), pumps.POLLIN | pumps.POLLOUT)]
    poll.unregister(one.fileno())
    assert poll.poll(0) == []
    one.close()
    other.close()


def test_a_client_on_stdio_is_read_and_written_to_the_end() -> None:
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()
    client = PumpedClientEnd(stdin, stdout)
    poll = pumps.Poll()
    poll.register(client.stdin, pumps.POLLIN)
    os.write(to_stdin, b'{"a":1}\n{"b"')
    assert poll.poll(PATIENCE * 1000)
    assert client.read() == [b'{"a":1}']
    os.close(to_stdin)
    assert poll.poll(PATIENCE * 1000)
    assert (client.read(), client.has_left) == ([b'{"b"'], True)
    client.write(b"answer\n")
    client.close()
    with os.fdopen(from_stdout, "rb") as file:
        assert file.read() == b"answer\n"
