"""How long a client waits for its first list, and what a bridge adds to each call."""

from __future__ import annotations

import argparse
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.hubs.machine import Client, Machine, lean, machine, median, until

TOOLS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--block", type=int, default=50, help="calls of one client before the next has its turn")
    options = parser.parse_args()
    with machine() as here:
        config = here.config(lean=lean(tools=TOOLS - 23))
        first = Client(here, "attach", config, "--no-strict")
        first.initialize()
        assert len(first.request("tools/list")["result"]["tools"]) == TOOLS
        first.request("tools/call", name="lean:echo", arguments={})
        time.sleep(2)
        _tell_first_lists(here, config, options.runs)
        _tell_calls(here, config, first, options.calls, options.block)
        first.close()
        _tell_cold_starts(here, config, max(options.runs // 3, 5))


def _first_list(here: Machine, config: str) -> tuple[float, int]:
    """Seconds from the start of the bridge to the end of the first list, and KiB that it holds then."""
    began = time.perf_counter()
    client = Client(here, "attach", config, "--no-strict")
    client.initialize()
    listed = client.request("tools/list")
    seconds = time.perf_counter() - began
    assert len(listed["result"]["tools"]) == TOOLS
    rss = client.rss()
    client.close()
    return seconds, rss


def _tell_first_lists(here: Machine, config: str, runs: int) -> None:
    found = [_first_list(here, config) for _ in range(runs)]
    seconds = sorted(s for s, _ in found)
    print(f"attach to a running hub: first list of {TOOLS} tools p50 {median(seconds):.3f} s, max {seconds[-1]:.3f} s")
    print(f"bridge: {median([rss for _, rss in found]) / 1024:.1f} MiB RSS, max {max(r for _, r in found) / 1024:.1f}")


def _tell_cold_starts(here: Machine, config: str, runs: int) -> None:
    found = []
    for _ in range(runs):
        here.run("stop")
        until(lambda: not here.hubs())
        began = time.perf_counter()
        client = Client(here, "attach", config, "--no-strict")
        client.initialize()
        client.request("tools/list")
        found.append(time.perf_counter() - began)
        client.request("tools/call", name="lean:echo", arguments={})
        time.sleep(1.5)
        client.close()
    print(f"cold, catalogue warm: first list p50 {median(found):.3f} s, max {max(found):.3f} s")


def _tell_calls(here: Machine, config: str, bridge: Client, calls: int, block: int) -> None:
    """In turn through the bridge and over the hub's socket, and by a `serve` of its own."""
    direct = _Direct(here)
    own = Client(here, config, "--no-strict")
    own.initialize()
    own.request("tools/list")
    ways: dict[str, Callable[..., Any]] = {"bridge": bridge.request, "socket": direct.request, "serve": own.request}
    for payload in (10, 10_000):
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(calls // block):
            for name, request in ways.items():
                for _ in range(block):
                    began = time.perf_counter()
                    request("tools/call", name="lean:echo", arguments={"text": "x" * payload})
                    times[name].append(time.perf_counter() - began)
                if number * block < 50:
                    times[name].clear()
        p50 = {name: median(found) * 1e6 for name, found in times.items()}
        shown = ", ".join(f"{name} {value:.0f}" for name, value in p50.items())
        print(f"call of {payload} bytes, p50 in µs: {shown}; the bridge adds {p50['bridge'] - p50['socket']:.0f}")
    own.close()


class _Direct:
    """A client on the socket of the hub, without a bridge."""

    def __init__(self, here: Machine) -> None:
        [path] = Path(here.root).rglob("*.sock")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        from fastmcp_aggregator.attach import greeting  # noqa: PLC0415 - of the program that is measured

        self._socket.sendall(greeting.line(greeting.CLIENT, folder="/", pid=1, group=None, tool_search=None))
        self._file = self._socket.makefile("rb")
        self._file.readline()
        about = {"name": "x", "version": "1"}
        self.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
        self._socket.sendall(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self._number = 0

    _number = 0

    def request(self, method: str, **params: Any) -> Any:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._socket.sendall(json.dumps(message).encode() + b"\n")
        while True:
            answer = json.loads(self._file.readline())
            if answer.get("id") == self._number:
                return answer


if __name__ == "__main__":
    main()
