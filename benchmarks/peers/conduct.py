"""What each peer does when servers die, hang, report or change, and for clients and servers of both eras."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from benchmarks.clients import ERAS, LEGACY, MODERN, Connection, HttpClient, Message, StdioClient
from benchmarks.peers.bench import Bench, all_listed, called, lean, lean_servers, names_listed, said
from benchmarks.peers.event_stream import SseClient
from benchmarks.peers.running import PeerClient, Served
from benchmarks.peers.table import Peer
from benchmarks.peers.turns import tried
from benchmarks.rounds import Figures

BACK_SECONDS = 15.0
"""That a killed server is waited for."""
HANG_SECONDS = 40.0
"""That the tools of a good server are waited for, beside one that does not answer its handshake."""
SECONDS = 15.0
"""For anything else, the start with it."""
TOLD_SECONDS = 3.0
"""That a notification is waited for."""
LISTED_SECONDS = 6.0
"""That tools are waited for."""
STEPS = 3
_PAUSE = 0.05

Step = Callable[[Bench, Peer], Figures]


def conduct(bench: Bench) -> list[Figures]:
    """Death and hanging of a server, eras, progress, changed lists."""
    found = []
    for peer in bench.peers:
        found.append(of_peer(bench, peer))
        print(found[-1], flush=True)
    return found


def of_peer(bench: Bench, peer: Peer) -> Figures:
    """All that is looked at of one peer: of each what was seen, or why it was not."""
    steps: dict[str, tuple[Step, float]] = {
        "death": (after_a_death, BACK_SECONDS + SECONDS),
        "hang": (beside_a_hanging_one, HANG_SECONDS),
        "progress": (told_of_progress, SECONDS),
        "changes": (told_of_changes, SECONDS),
        **{f"{era} to {other}": (of_eras(era, other), SECONDS) for era in ERAS for other in ERAS},
    }
    seen = {name: tried(lambda step=step: step(bench, peer), seconds) for name, (step, seconds) in steps.items()}
    return {"name": peer.label, "peer": peer.name, "front": peer.front, **seen, "against": {}}


def after_a_death(bench: Bench, peer: Peer) -> Figures:
    """Seconds after `kill -9` of a server until it answers a call again, if it is called 20 times a second."""
    with ExitStack() as stack:
        client = bench.serving(peer, lean_servers(3), stack).client()
        name = peer.tool("s1", "pid")
        all_listed(client, [name], LISTED_SECONDS)
        pid = said(called(client, name, {}))["pid"]
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            raise RuntimeError("it starts a server anew for each call") from None
        began = time.perf_counter()
        while time.perf_counter() - began < BACK_SECONDS:
            with suppress(RuntimeError, LookupError, ValueError):
                if said(called(client, name, {}))["pid"] != pid:
                    return {"seconds": round(time.perf_counter() - began, 3)}
            time.sleep(_PAUSE)
    raise TimeoutError(f"not within {BACK_SECONDS:g} s")


def beside_a_hanging_one(bench: Bench, peer: Peer) -> Figures:
    """Seconds from the start until the tools of a good server are listed, beside one that never answers."""
    with ExitStack() as stack:
        served = bench.serving(peer, {"good": lean(), "silent": lean(silent=True)}, stack)
        all_listed(served.client(), [peer.tool("good", "echo")])
        return {"seconds": round(served.age(), 2)}


def told_of_progress(bench: Bench, peer: Peer) -> Figures:
    """How many of three notifications of progress reach the caller."""
    with ExitStack() as stack:
        client = bench.serving(peer, lean_servers(2), stack).client()
        name = peer.tool("s0", "progress")
        all_listed(client, [name], LISTED_SECONDS)
        params: Message = {"name": name, "arguments": {"steps": STEPS}, "_meta": {"progressToken": "p"}}
        response = client.exchange(client.request("tools/call", params))
        client.result("tools/list", {})  # what comes after the answer counts, too
        if isinstance(client, StdioClient | SseClient):
            return {"told": client.told["notifications/progress"]}
        return {"told": response.count(b'"notifications/progress"')}


def told_of_changes(bench: Bench, peer: Peer) -> Figures:
    """Whether a client is told that a server has a new tool, and has it in its next list."""
    with ExitStack() as stack:
        served = bench.serving(peer, lean_servers(2), stack)
        client = served.client()
        all_listed(client, [peer.tool("s0", "echo")], LISTED_SECONDS)
        listening = Listening(served, client)
        stack.callback(listening.close)
        called(client, peer.tool("s0", "add_tool"), {})
        is_told = listening.is_told()
        return {"is_told": is_told, "is_listed": peer.tool("s0", "newcomer") in names_listed(client)}


class Listening:
    """A client that waits to be told of a changed list: over HTTP on a stream of its own."""

    def __init__(self, served: Served, client: PeerClient) -> None:
        self._client = client
        self._stream: Connection | None = None
        if isinstance(client, HttpClient) and not isinstance(client, SseClient):
            self._stream = Connection(served.port)
            self._stream.sock.sendall(client.plain_request(served.peer.path).encoded())

    def is_told(self) -> bool:
        """Whether it comes within some seconds."""
        until = time.perf_counter() + TOLD_SECONDS
        if self._stream is not None:
            return self._is_told_on_its_stream(until)
        assert isinstance(self._client, StdioClient | SseClient)
        while time.perf_counter() < until:
            if self._client.told["notifications/tools/list_changed"]:
                return True
            self._client.result("tools/list", {})
            time.sleep(_PAUSE)
        return False

    def _is_told_on_its_stream(self, until: float) -> bool:
        assert self._stream is not None
        heard = b""
        while b"notifications/tools/list_changed" not in heard:
            self._stream.sock.settimeout(max(until - time.perf_counter(), 0.001))
            try:
                data = self._stream.sock.recv(65536)
            except TimeoutError:
                return False
            if not data:
                return False
            heard += data
        return True

    def close(self) -> None:
        """Wait no more."""
        if self._stream is not None:
            self._stream.sock.close()


def of_eras(client_era: str, server_era: str) -> Step:
    """Whether a client of one era can list and call a server of an era."""

    def step(bench: Bench, peer: Peer) -> Figures:
        kind = {LEGACY: "legacy", MODERN: "modern"}[server_era]
        with ExitStack() as stack:
            client = bench.serving(peer, {"one": lean(era=kind), "other": lean()}, stack).client(client_era)
            name = peer.tool("one", "echo")
            about = {} if client_era == LEGACY else client.result("server/discover", {})
            all_listed(client, [name], LISTED_SECONDS)
            answer = called(client, name, {"x": 1})
            said(answer)["arguments"]
            if client_era == MODERN and not ("resultType" in answer and MODERN in about["supportedVersions"]):
                raise RuntimeError(f"it answers a client of {MODERN} as one of {LEGACY}")
        return {"works": True}

    return step
