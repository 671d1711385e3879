"""A bridge in this process, before a hub that is played by the test."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.doubles import Clock
from support.harness import PATIENCE

from fastmcp_aggregator.attach import bridge, greeting, probe
from fastmcp_aggregator.attach.bridge import Bridge
from fastmcp_aggregator.attach.client_end import ClientEnd, PumpedClientEnd
from fastmcp_aggregator.attach.folder import made_hub_folder, socket_of
from fastmcp_aggregator.attach.identity import HubIdentity
from fastmcp_aggregator.attach.probe import Timings
from fastmcp_aggregator.attach.systems import pumps, system
from fastmcp_aggregator.early.answers import digest_of, signature_of

LIST = b'{"tools":[]}'
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What listens where the hub of the bridge does."""
    runtime = Path(tempfile.mkdtemp(prefix="hub-"))  # a socket's path must be short
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    made_hub_folder()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.settimeout(PATIENCE)
        listener.bind(socket_of("h"))
        listener.listen()
        yield listener
    shutil.rmtree(runtime)


def until_true(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def said_first(hub: socket.socket) -> tuple[socket.socket, dict[str, Any]]:
    """The next connection, and what the bridge says of its client there."""
    peer, _ = hub.accept()
    peer.settimeout(PATIENCE)
    return peer, json.loads(peer.recv(greeting.LONGEST))


class Bridged:
    """A bridge that runs, and the ends of its client."""

    def __init__(self, client_end: type[ClientEnd], **timings: float) -> None:
        (self._stdin, to_bridge), (from_bridge, self._stdout) = os.pipe(), os.pipe()
        self.client, self.answers = os.fdopen(to_bridge, "wb", buffering=0), os.fdopen(from_bridge, "rb")
        client = client_end(os.dup(self._stdin), os.dup(self._stdout))
        self.bridge = Bridge(HubIdentity("h", None, "c", (), False, {}), {}, (), "", client, Timings(**timings))
        self._running = Thread(target=self.bridge.run, daemon=True)
        self._running.start()

    def request(self, number: int, method: str, params: Any) -> None:
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.client.write(json.dumps(request).encode() + b"\n")

    def close(self) -> None:
        self.client.close()
        self.answers.close()
        self._running.join(PATIENCE)
        os.close(self._stdin)
        os.close(self._stdout)


@pytest.fixture(params=["descriptors", "sockets alone"])
def bridged(hub: socket.socket, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Bridged]:
    """One that waits for descriptors, or for sockets alone, as on Windows."""
    if request.param == "sockets alone":
        monkeypatch.setattr(system, "poll", pumps.Poll)
    signature = signature_of(HELLO["protocolVersion"], HELLO["capabilities"], {"name": "x", "version": "1"})
    known = {signature: {"initialize": b"{}", "tools/list": LIST}}
    monkeypatch.setattr(bridge, "read_answers", lambda _: known)
    one = Bridged(ClientEnd if request.param == "descriptors" else PumpedClientEnd, shortest_life=0.0)
    yield one
    one.close()


def test_a_hub_is_told_the_lists_that_were_answered_while_it_started(hub: socket.socket, bridged: Bridged) -> None:
    """They are from the last run: what is listed since then, the client would never hear of."""
    first, about = said_first(hub)
    assert about["listed"] == {}
    for number, (method, params) in enumerate([("initialize", HELLO), ("tools/list", {})]):
        bridged.request(number, method, params)
        assert json.loads(bridged.answers.readline())["id"] == number
    with first:
        first.sendall(greeting.line(greeting.READY, config="c"))
        assert first.recv(1) == b""
    second, about = said_first(hub)
    with second:
        assert about["listed"] == {"tools/list": digest_of(LIST)}
        second.sendall(greeting.line(greeting.READY, config="c"))
        assert json.loads(second.recv(greeting.LONGEST))["method"] == "initialize"


def test_a_hub_that_starts_answers_the_handshake_and_is_introduced_once_it_serves(
    hub: socket.socket, bridged: Bridged
) -> None:
    bridged.request(0, "initialize", {**HELLO, "capabilities": {"roots": {}}})  # which has no answer from before
    peer, about = said_first(hub)
    assert json.loads(about["handshake"])["method"] == "initialize"
    with peer:
        answer = '{"jsonrpc":"2.0","id":0,"result":{"from":"hub"}}'
        peer.sendall(greeting.line(greeting.INTRODUCED, answer=answer))
        assert bridged.answers.readline().decode() == answer + "\n"
        bridged.request(1, "tools/list", {})
        peer.sendall(greeting.line(greeting.READY, config="c"))
        assert json.loads(peer.recv(greeting.LONGEST))["method"] == "initialize"
        peer.sendall(b'{"jsonrpc":"2.0","id":0,"result":{"from":"hub, later"}}\n')
        assert json.loads(peer.recv(greeting.LONGEST))["method"] == "tools/list"
        peer.sendall(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        assert json.loads(bridged.answers.readline())["id"] == 1


def test_a_bridge_sleeps_until_a_client_reads_what_a_hub_has_left(hub: socket.socket, bridged: Bridged) -> None:
    peer, _ = said_first(hub)
    with peer:
        peer.sendall(greeting.line(greeting.READY, config="c"))
        bridged.request(1, "tools/call", {})
        peer.recv(greeting.LONGEST)
        peer.sendall(b'{"jsonrpc":"2.0","id":1,"result":{"text":"%s"}}\n' % (b"x" * 3_000_000))
    until_true(lambda: not bridged.bridge._client.has_room)
    turns = []
    wait = bridged.bridge._wait
    bridged.bridge._wait = lambda: (turns.append(1), wait())  # type: ignore[method-assign,func-returns-value]
    time.sleep(0.05)
    assert len(turns) < 10


def test_a_client_that_was_served_is_told_why_no_hub_starts_and_the_next_request_tries_again(
    hub: socket.socket, bridged: Bridged, capfd: pytest.CaptureFixture[str]
) -> None:
    peer, _ = said_first(hub)
    with peer:
        peer.sendall(greeting.line(greeting.READY, config="c"))
        bridged.request(0, "initialize", HELLO)
        peer.recv(greeting.LONGEST)
        peer.sendall(b'{"jsonrpc":"2.0","id":0,"result":{}}\n')
        assert json.loads(bridged.answers.readline())["id"] == 0
        bridged.request(1, "tools/list", {})
        peer.recv(greeting.LONGEST)
    failing, _ = said_first(hub)
    with failing:
        bridged.client.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        bridged.request(2, "tools/call", {})
        until_true(lambda: len(bridged.bridge._held) == 2)
        failing.sendall(greeting.failed("c: 1 problem\n  $.a: no"))
    for number in (1, 2):
        answer = json.loads(bridged.answers.readline())
        assert answer["id"] == number
        assert "c: 1 problem $.a: no" in answer["error"]["message"]
    hub.settimeout(0.1)
    with pytest.raises(TimeoutError):
        hub.accept()  # nobody asks for a hub
    hub.settimeout(PATIENCE)
    bridged.request(3, "tools/call", {})
    mended, _ = said_first(hub)
    with mended, mended.makefile("rb") as heard:
        mended.sendall(greeting.line(greeting.READY, config="c"))
        assert json.loads(heard.readline())["method"] == "initialize"
        mended.sendall(b'{"jsonrpc":"2.0","id":0,"result":{}}\n')
        methods = [json.loads(heard.readline())["method"] for _ in range(2)]
        assert methods == ["notifications/initialized", "tools/call"]
        mended.sendall(b'{"jsonrpc":"2.0","id":3,"result":{}}\n')
        assert json.loads(bridged.answers.readline()) == {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert "c: 1 problem $.a: no" in capfd.readouterr().err


def test_a_client_that_was_served_outlives_hubs_and_a_server_of_its_own_that_all_end_at_once(
    hub: socket.socket, bridged: Bridged, monkeypatch: pytest.MonkeyPatch
) -> None:
    def own_server(_: object) -> tuple[socket.socket, socket.socket, Callable[[], int]]:
        (output, stdout), (input_, stdin) = socket.socketpair(), socket.socketpair()
        with stdout, stdin:
            return output, input_, lambda: 9

    monkeypatch.setattr(bridge, "own_server", own_server)
    peer, _ = said_first(hub)
    with peer:
        peer.sendall(greeting.line(greeting.READY, config="c"))
        bridged.request(0, "initialize", HELLO)
        peer.recv(greeting.LONGEST)
        peer.sendall(b'{"jsonrpc":"2.0","id":0,"result":{}}\n')
        assert json.loads(bridged.answers.readline())["id"] == 0
        bridged.request(1, "tools/call", {})
        peer.recv(greeting.LONGEST)
    assert "the hub ended" in json.loads(bridged.answers.readline())["error"]["message"]
    bridged.request(2, "tools/call", {})
    for _ in range(3):
        ending, _ = said_first(hub)
        until_true(lambda: bool(bridged.bridge._held))
        ending.close()
    answer = json.loads(bridged.answers.readline())
    assert answer["id"] == 2
    assert "3 hubs have ended before they could serve it" in answer["error"]["message"]
    assert "a server of its own has ended with code 9" in answer["error"]["message"]
    bridged.request(3, "tools/call", {})
    with said_first(hub)[0] as mended, mended.makefile("rb") as heard:
        mended.sendall(greeting.line(greeting.READY, config="c"))
        assert json.loads(heard.readline())["method"] == "initialize"
        mended.sendall(b'{"jsonrpc":"2.0","id":0,"result":{}}\n')
        assert json.loads(heard.readline())["id"] == 3
        mended.sendall(b'{"jsonrpc":"2.0","id":3,"result":{}}\n')
        assert json.loads(bridged.answers.readline())["id"] == 3


def test_a_hub_that_is_late_and_at_work_is_waited_for(
    hub: socket.socket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On an overloaded machine. Otherwise each of its clients would start an aggregator beside it."""
    looks = itertools.count()
    monkeypatch.setattr(probe, "processor_time", lambda _: probe.ProcessorTime(next(looks) * 0.01, False))
    late = Bridged(ClientEnd, start_timeout=0.01, work_interval=0.01)
    peer, _ = said_first(hub)
    with peer, peer.makefile("rb") as heard:
        late.request(1, "tools/list", {})
        until_true(lambda: next(looks) > 20)
        peer.sendall(greeting.line(greeting.READY, config="c"))
        assert json.loads(heard.readline())["method"] == "tools/list"
        peer.sendall(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        assert json.loads(late.answers.readline())["id"] == 1
    late.close()
    assert capfd.readouterr().err == ""


def test_a_greeting_that_came_while_the_bridge_had_no_processor_is_read(
    hub: socket.socket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bridge, "own_server", lambda _: pytest.fail("it was not read"))
    peer: socket.socket | None = None

    def read_answers_late(_: object) -> dict[str, dict[str, bytes]]:
        nonlocal peer
        peer, _ = said_first(hub)
        peer.sendall(greeting.line(greeting.READY, config="c"))
        connection = late.bridge._connection
        assert connection is not None
        until_true(lambda: connection.age > 0.1)
        return {}

    monkeypatch.setattr(bridge, "read_answers", read_answers_late)
    late = Bridged(ClientEnd, start_timeout=0.1)
    late.request(1, "tools/list", {})
    until_true(lambda: peer is not None)
    assert peer is not None
    with peer, peer.makefile("rb") as heard:
        assert json.loads(heard.readline())["id"] == 1
        peer.sendall(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        assert json.loads(late.answers.readline())["id"] == 1
    late.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("share", "is_wanted", "left_after"),
    [(0.001, False, None), (0.0, True, None), (0.0, False, 25.0), (1.0, True, 25.0), (0.9, True, 30.0)],
    ids=["works", "waits for the processor", "stands still", "spins", "spins, with most of the processor"],
)
@pytest.mark.usefixtures("hub")
def test_a_hub_that_serves_and_answers_no_probe_is_left_unless_it_works_and_gets_little_of_the_processor(
    share: float, is_wanted: bool, left_after: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr(probe, "processor_time", lambda _: probe.ProcessorTime(clock.now * share, is_wanted))
    one = probe.Probe("h", Timings(clock=clock))
    while not one.is_dead and clock.now < 600:
        clock.now += one.look()
    one.close()
    assert (clock.now if one.is_dead else None) == left_after


def test_an_answer_to_a_probe_counts_that_came_while_the_bridge_had_no_processor(
    hub: socket.socket,
) -> None:
    clock = Clock(0.0)
    one = probe.Probe("h", Timings(clock=clock))
    clock.now += one.look()
    clock.now += one.look()
    peer, _ = said_first(hub)
    with peer:
        peer.sendall(greeting.line(greeting.PING))
    assert one.look() == probe.DEFAULT_TIMINGS.silence
    assert one.descriptor is None


@pytest.mark.parametrize(
    ("before", "now", "goes_on"),
    [
        ((1.0, False), (1.1, False), True),
        ((1.0, False), (1.0, True), True),
        ((1.0, False), (1.0, False), False),
        ((1.0, True), (11.1, True), False),
        (None, (1.0, True), False),
        ((1.0, True), None, False),
    ],
    ids=["works", "waits for the processor", "stands still", "has had enough", "was not known", "is gone"],
)
def test_a_hub_that_is_late_works_if_it_has_some_of_the_processor_or_waits_for_it_and_has_not_had_much(
    before: tuple[float, bool] | None, now: tuple[float, bool] | None, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(None if each is None else probe.ProcessorTime(*each) for each in (before, now))
    monkeypatch.setattr(probe, "processor_time", lambda _: next(told))
    assert probe.Work({"pid": 1}).goes_on() is goes_on


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it of any process")
def test_the_processor_time_is_told_of_processes_that_are_there() -> None:
    told = probe.processor_time(os.getpid())
    assert told is not None
    assert told.seconds > 0
    assert told.is_wanted
    assert probe.processor_time(None) is None
