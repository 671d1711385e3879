"""The handshakes that a hub answers while it starts."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE

from fastmcp_aggregator.attach import greeting
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.early.known_client import Introduce
from fastmcp_aggregator.local_hub.introductions import IntroduceTo, introducing

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
HANDSHAKE = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": HELLO})
SAYING = {"handshake": HANDSHAKE}


@pytest.fixture
def listener() -> Iterator[system.Listener]:
    with tempfile.TemporaryDirectory(prefix="hub-") as made:  # a socket's path must be short
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(Path(made) / "hub.sock"))
        listening.listen()
        yield system.Listener(listening)
        listening.close()


def connected(listener: system.Listener, said: bytes) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(listener._path)
    peer.setblocking(False)
    peer.sendall(said)
    return peer


def introduce_as(name: str) -> IntroduceTo:
    def introduce_to(about: Mapping[str, Any]) -> Introduce | None:
        is_there = about.get("group") in {None, "web"}
        return (lambda method, _: {method: json.dumps({"name": name}).encode()}) if is_there else None

    return introduce_to


def introduce_all(listener: system.Listener, name: str = "hub") -> None:
    with introducing(listener, introduce_as(name)):
        pass


def said_to(peer: socket.socket) -> bytes:
    try:
        return peer.recv(greeting.LONGEST)
    except BlockingIOError:
        return b""


def test_a_handshake_is_answered_and_its_client_is_still_to_be_accepted(listener: system.Listener) -> None:
    said = greeting.line(greeting.CLIENT, **SAYING)
    with connected(listener, said) as peer:
        introduce_all(listener)
        what, about = greeting.read(said_to(peer))
        assert what == greeting.INTRODUCED
        assert json.loads(about["answer"]) == {"jsonrpc": "2.0", "id": 7, "result": {"name": "hub"}}
        [waiting] = listener.connected()
        assert waiting.recv(greeting.LONGEST) == said
        listener.close(greeting.line(greeting.STOPPING))
        assert greeting.read(said_to(peer))[0] == greeting.STOPPING


def test_who_connects_while_the_hub_imports_is_answered_once(listener: system.Listener) -> None:
    said = greeting.line(greeting.CLIENT, **SAYING)
    with introducing(listener, introduce_as("hub")), connected(listener, said[:20]) as peer:
        with connected(listener, said) as other:
            assert answer_to(other) == {"name": "hub"}
        peer.sendall(said[20:])
        assert answer_to(peer) == {"name": "hub"}
        with connected(listener, said) as another:
            answer_to(another)
        peer.setblocking(False)
        assert said_to(peer) == b""
    with connected(listener, said) as late:
        assert len(listener.connected()) == 4
        assert said_to(late) == b""


def answer_to(peer: socket.socket) -> Any:
    peer.settimeout(PATIENCE)
    what, about = greeting.read(peer.recv(greeting.LONGEST))
    assert what == greeting.INTRODUCED
    return json.loads(about["answer"])["result"]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"no greeting\n",
        greeting.line(greeting.CLIENT),
        greeting.line(greeting.STATUS, **SAYING),
        greeting.line(greeting.CLIENT, handshake=7),
        greeting.line(greeting.CLIENT, handshake="\ud800"),
        greeting.line(greeting.CLIENT, group=["web"], **SAYING),
        greeting.line(greeting.CLIENT, handshake=HANDSHAKE.replace("initialize", "tools/call")),
        greeting.line(greeting.CLIENT, **SAYING)[:-40],
        json.dumps({"hub": greeting.CLIENT, "version": "another", **SAYING}).encode() + b"\n",
    ],
)
def test_what_is_no_handshake_waits_for_the_hub(said: bytes, listener: system.Listener) -> None:
    with connected(listener, said) as peer, connected(listener, greeting.line(greeting.CLIENT, **SAYING)) as other:
        introduce_all(listener)
        assert (said_to(peer), bool(said_to(other))) == (b"", True)
        assert len(listener.connected()) == 2


def test_an_answer_that_a_connection_may_not_take_at_once_waits_for_the_hub(listener: system.Listener) -> None:
    with connected(listener, greeting.line(greeting.CLIENT, **SAYING)) as peer:
        [waiting] = listener.connected()
        waiting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * 1024)
        introduce_all(listener, "x" * 20_000)
        assert said_to(peer) == b""


def test_who_may_not_be_introduced_waits_for_the_hub(listener: system.Listener) -> None:
    asked: list[Any] = []
    with connected(listener, greeting.line(greeting.CLIENT, group="web", **SAYING)) as peer:
        with introducing(listener, lambda about: asked.append(about["group"])):
            pass
        assert (asked, said_to(peer)) == (["web"], b"")
