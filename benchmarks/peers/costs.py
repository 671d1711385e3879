"""What each peer costs: calls, a list of 1000 tools, the first list after the start, memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median, quantiles

from benchmarks.clients import Request, StdioClient, burst
from benchmarks.peers.bench import START_SECONDS, Bench, all_listed, lean_servers
from benchmarks.peers.running import PeerClient, Served
from benchmarks.peers.running import started as running
from benchmarks.peers.table import Peer
from benchmarks.peers.turns import taking_turns
from benchmarks.programs import BASE_TOOLS, DIRECT, clean_environment
from benchmarks.rounds import IN_FLIGHT, Figures, Size, Subject, at_once, timed

SERVERS = 10
COUNTS = (1, 10, 50, 200)
"""Servers at a start."""
TOOLS = 1000
DIRECT_CALL = "direct call"
ARGUMENTS = {"x": 1}
_WARM_UP = 3
_SECONDS = 2.0
"""How long each part of a visit takes at most."""
_VISIT_SECONDS = 40.0


def calls(bench: Bench) -> list[Figures]:
    """Calls one at a time and 16 at once, with 10 lean servers, beside a direct call to such a server."""
    with ExitStack() as stack:
        child = StdioClient(DIRECT, cwd=bench.folder, env=clean_environment())
        stack.callback(child.close)
        request = child.request("tools/call", {"name": "echo", "arguments": ARGUMENTS})
        direct = partial(called_on_stdio, child, request, bench.size)
        subjects = [Subject(DIRECT_CALL, direct), *(caller(bench, peer, stack) for peer in bench.peers)]
        return taking_turns(subjects, DIRECT_CALL, bench.size.rounds, _VISIT_SECONDS)


def caller(bench: Bench, peer: Peer, stack: ExitStack) -> Subject:
    """A peer that is called in each visit; in the first it is started."""
    ready: list[tuple[Served, list[tuple[PeerClient, Request]]]] = []

    def visit() -> Figures:
        if not ready:
            ready.append(started(bench, peer, stack))
        served, pairs = ready[0]
        client, request = pairs[0]
        alone = alternately(served, client, request, bench.size)
        count = fitting(alone["p50_ms"] / 1000, bench.size.burst)
        if isinstance(client, StdioClient):
            return alone | at_once(lambda: client.burst(request, count, IN_FLIGHT), count, served.usage)
        for other, _ in pairs[1:]:
            other.connect()
        return alone | at_once(lambda: burst(pairs, count), count, served.usage)  # type: ignore[arg-type]

    return Subject(peer.label, visit, {"peer": peer.name, "front": peer.front}, lambda: memory(ready[0][0]))


def started(bench: Bench, peer: Peer, stack: ExitStack) -> tuple[Served, list[tuple[PeerClient, Request]]]:
    """A peer whose servers are up; its clients, as many as call at once, with their calls."""
    served = bench.serving(peer, lean_servers(SERVERS), stack)
    name = peer.tool("s5", "echo")
    first = served.client()
    all_listed(first, [name])
    clients = [first]
    if not isinstance(first, StdioClient):
        clients += [served.client() for _ in range(IN_FLIGHT - 1)]
    call = {"name": name, "arguments": ARGUMENTS}
    pairs = [(client, client.request("tools/call", call)) for client in clients]
    for _, request in pairs:
        request.expected = b"lean"
    return served, pairs


def alternately(served: Served, client: PeerClient, request: Request, size: Size) -> Figures:
    """Calls one after the other: median, 99th percentile, and CPU of the peer's process for each."""
    client.connect()
    for _ in range(_WARM_UP):
        client.exchange(request)
    before = served.usage.cpu()
    times = exchanges(lambda: client.exchange(request), size.calls)
    cpu = served.usage.cpu() - before
    return {**spread_of(times), "cpu_us": cpu / len(times) * 1e6}


def called_on_stdio(client: StdioClient, request: Request, size: Size) -> Figures:
    """A direct visit of a lean server."""
    times = exchanges(lambda: client.exchange(request), size.calls)
    return {**spread_of(times), "calls_per_s": size.burst / client.burst(request, size.burst, IN_FLIGHT)}


def exchanges(exchange: Callable[[], object], most: int) -> list[float]:
    """The seconds of so many exchanges, or of fewer if they take too long."""
    times, began = list[float](), time.perf_counter()
    while len(times) < most and (len(times) < _WARM_UP or time.perf_counter() - began < _SECONDS):
        times.append(timed(exchange))
    return times


def spread_of(times: list[float]) -> Figures:
    """Median and 99th percentile."""
    p99 = quantiles(times, n=100, method="inclusive")[98]
    return {"p50_ms": median(times) * 1000, "p99_ms": p99 * 1000}


def fitting(seconds_each: float, most: int) -> int:
    """How many calls at once fit into the time of a visit, if none is faster for it."""
    return max(IN_FLIGHT, min(most, int(_SECONDS / seconds_each)))


def memory(served: Served) -> Figures:
    """MiB of the peer's process."""
    return {"rss_mb": round(served.usage.rss_mb(), 1)}


def list_of_1000(bench: Bench) -> list[Figures]:
    """A repeated list of 1000 tools of 10 lean servers."""
    with ExitStack() as stack:
        subjects = [lister(bench, peer, stack) for peer in bench.peers]
        return taking_turns(subjects, "", bench.size.rounds, _VISIT_SECONDS)


def lister(bench: Bench, peer: Peer, stack: ExitStack) -> Subject:
    """A peer that is asked for its tools in each visit; in the first it is started."""
    ready: list[tuple[PeerClient, Request]] = []

    def visit() -> Figures:
        if not ready:
            served = bench.serving(peer, lean_servers(SERVERS, TOOLS // SERVERS), stack)
            client = served.client()
            all_listed(client, every_tool(peer, SERVERS, TOOLS // SERVERS))
            ready.append((client, client.request("tools/list", {})))
        client, request = ready[0]
        client.connect()
        return {"p50_ms": median(exchanges(lambda: client.exchange(request), bench.size.calls)) * 1000}

    return Subject(peer.label, visit, {"peer": peer.name, "front": peer.front})


def first_list(count: int) -> Callable[[Bench], list[Figures]]:
    """The row of a start with so many servers."""

    def row(bench: Bench) -> list[Figures]:
        subjects = [starter(bench, peer, count) for peer in bench.peers]
        # Programs are new in each visit: what one more warms is the disk's cache, which does not depend on the count.
        is_first = count == min(COUNTS)
        return taking_turns(subjects, "", bench.size.rounds, START_SECONDS, warms_up=is_first)

    row.__doc__ = f"Seconds from the start of the process until all tools of {count} lean servers are listed."
    return row


def starter(bench: Bench, peer: Peer, count: int) -> Subject:
    """A peer that is started twice in each visit: as one that knows nothing, and as the next day."""
    wanted = every_tool(peer, count, BASE_TOOLS)

    def visit() -> Figures:
        with ExitStack() as stack:
            served = bench.serving(peer, lean_servers(count), stack)
            all_listed(served.client(), wanted)
            first = {"first_list_s": served.age(), **memory(served)}
        with running(served.again()) as served:
            all_listed(served.client(), wanted)
            return {**first, "next_list_s": served.age()}

    return Subject(peer.label, visit, {"peer": peer.name, "front": peer.front, "servers": count})


def every_tool(peer: Peer, servers: int, tools_each: int) -> list[str]:
    """What is listed of such servers: a tool that each has, and those that were asked for."""
    of_each = ["echo", *(f"tool_{number}" for number in range(tools_each - BASE_TOOLS))]
    return [peer.tool_of(servers, f"s{server}", tool) for server in range(servers) for tool in of_each]
