"""What the aggregator costs, measured side by side on this machine: `python benchmarks/run.py [--json FILE]`.

Every comparison runs both sides in turn, call by call or start by start, so that a change in the machine's speed hits
both alike; the figures are medians. The children are the hand-written `tests/support/programs/lean_child.py`, which
answers at once, so that what is left is the cost of what stands in between.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from clients import HttpClient, StdioClient

LEAN_CHILD = Path(__file__).parent.parent / "tests" / "support" / "programs" / "lean_child.py"
BASE_TOOLS = 23
"""Tools that every lean child has."""

FASTMCP_PROXY = (
    "import json, sys; from fastmcp.server import create_proxy; "
    "create_proxy(json.load(open(sys.argv[1]))).run(show_banner=False)"
)

Figures = dict[str, Any]
Say = Callable[[str], None]


def lean_config(folder: Path, children: int, tools_each: int = BASE_TOOLS) -> str:
    """Write an `mcpServers` file with so many lean children; its path."""
    options = json.dumps({"tools": tools_each - BASE_TOOLS})
    entry = {"command": sys.executable, "args": ["-S", str(LEAN_CHILD), options]}
    path = folder / f"{children}x{tools_each}.json"
    path.write_text(json.dumps({"mcpServers": {f"s{i}": entry for i in range(children)}}))
    return str(path)


def aggregator(config: str) -> list[str]:
    """The command that serves a config on stdio."""
    return [sys.executable, "-m", "fastmcp_aggregator", config]


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds that a call takes."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def interleaved(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Time every call once a round; milliseconds by name. The first tenth is warm-up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + rounds // 10 + 1):
        for name, call in calls.items():
            took = timed(call)
            if number > rounds // 10:
                times[name].append(took)
    return times


def summary(times: list[float]) -> dict[str, float]:
    """Median and 99th percentile, in milliseconds."""
    return {"p50": round(median(times), 3), "p99": round(quantiles(times, n=100)[98], 3)}


def measure_calls(folder: Path, rounds: int, say: Say) -> Figures:
    """One call through the stdio front, with 10 and 100 children, beside a direct one."""
    with ExitStack() as stack:

        def open_client(command: list[str]) -> StdioClient:
            client = StdioClient(command)
            stack.callback(client.close)
            return client

        direct = open_client([sys.executable, "-S", str(LEAN_CHILD)])
        behind = {n: open_client(aggregator(lean_config(folder, n))) for n in (10, 100)}
        for client in behind.values():
            client.request("tools/list")
        calls = {"direct": lambda: direct.request("tools/call", {"name": "echo", "arguments": {"x": 1}})}
        for n, client in behind.items():
            calls[f"aggregator, {n} children"] = lambda client=client, n=n: client.request(  # type: ignore[misc]
                "tools/call", {"name": f"s{n // 2}:echo", "arguments": {"x": 1}}
            )
        say(f"  {rounds} calls each")
        figures = {name: summary(times) for name, times in interleaved(calls, rounds).items()}
    base = figures["direct"]["p50"]
    added = {n: round(figures[f"aggregator, {n} children"]["p50"] - base, 3) for n in behind}
    return {
        "ms": figures,
        "added_p50_ms": {"10 children": added[10], "100 children": added[100]},
        "ratio_100_to_10": round(added[100] / added[10], 2),
    }


def measure_fastmcp_proxy(folder: Path, rounds: int, say: Say) -> Figures:
    """The same call through FastMCP's own multi-server proxy, with 10 children."""
    config = lean_config(folder, 10)
    direct = StdioClient([sys.executable, "-S", str(LEAN_CHILD)])
    proxy = StdioClient([sys.executable, "-c", FASTMCP_PROXY, config])
    say(f"  {rounds} calls each")
    calls = {
        "direct": lambda: direct.request("tools/call", {"name": "echo", "arguments": {"x": 1}}),
        "FastMCP proxy, 10 children": lambda: proxy.request("tools/call", {"name": "s5_echo", "arguments": {"x": 1}}),
    }
    times = interleaved(calls, rounds)
    direct.close()
    proxy.process.kill()
    proxy.process.wait()
    added = median(times["FastMCP proxy, 10 children"]) - median(times["direct"])
    return {"added_p50_ms": round(added, 1)}


def measure_http(folder: Path, rounds: int, say: Say) -> Figures:
    """One call through the HTTP front by a legacy and by a modern client."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*aggregator(lean_config(folder, 10, 100)), "--transport", "http", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        legacy, modern = HttpClient(port, modern=False), HttpClient(port, modern=True)
        for client in (legacy, modern):
            client.request("tools/list", {})
        say(f"  {rounds} calls each, 1000 tools listed")
        params = {"name": "s5:echo", "arguments": {"x": 1}}
        calls = {
            "legacy client": lambda: legacy.request("tools/call", params),
            "modern client": lambda: modern.request("tools/call", params),
        }
        figures = {name: summary(times) for name, times in interleaved(calls, rounds).items()}
        legacy.close()
        modern.close()
    finally:
        server.terminate()
        server.wait(60)
    ratio = figures["modern client"]["p50"] / figures["legacy client"]["p50"]
    return {"ms": figures, "ratio_modern_to_legacy": round(ratio, 2)}


def wait_for_port(port: int) -> None:
    """Wait until somebody listens there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError("the HTTP server did not start")


def measure_starts(folder: Path, rounds: int, say: Say) -> Figures:
    """Seconds from the start of the process to the first complete list."""
    figures: Figures = {}
    for children in (10, 100):
        took = []
        for _ in range(rounds):
            client = StdioClient(aggregator(lean_config(folder, children)))
            listed = client.request("tools/list")["tools"]
            took.append(time.perf_counter() - client.started)
            client.close()
            if len(listed) != children * BASE_TOOLS:
                raise RuntimeError(f"{len(listed)} tools listed, not {children * BASE_TOOLS}")
        figures[f"{children} children"] = round(median(took), 2)
        say(f"  {children} children: {', '.join(f'{t:.2f}' for t in took)} s")
    return figures


def measure_list(folder: Path, rounds: int, say: Say) -> Figures:
    """A repeated list of 1000 tools."""
    client = StdioClient(aggregator(lean_config(folder, 10, 100)))
    count = len(client.request("tools/list")["tools"])
    say(f"  {count} tools, {rounds} lists")
    times = [timed(lambda: client.request("tools/list")) for _ in range(rounds)]
    client.close()
    return {"tools": count, **summary(times)}


TARGETS: list[tuple[str, Callable[[Figures], float], float, str]] = [
    ("stdio, 10 children: added p50 of a call", lambda f: f["calls"]["added_p50_ms"]["10 children"], 0.6, "ms"),
    ("stdio, 100 children against 10", lambda f: f["calls"]["ratio_100_to_10"], 1.3, "×"),
    ("HTTP: modern call against legacy", lambda f: f["http"]["ratio_modern_to_legacy"], 1.5, "×"),
    ("first list, 10 children", lambda f: f["first_list_s"]["10 children"], 1.5, "s"),
    ("first list, 100 children", lambda f: f["first_list_s"]["100 children"], 5.5, "s"),
    ("repeated list of 1000 tools", lambda f: f["list_1000_ms"]["p50"], 50, "ms"),
]


def table(figures: Figures) -> str:
    """The figures beside what they are to reach."""
    rows = [("measured", "figure", "target", "")]
    for name, pick, target, unit in TARGETS:
        value = pick(figures)
        rows.append((name, f"{value:g} {unit}", f"≤ {target:g} {unit}", "reached" if value <= target else "MISSED"))
    proxy = figures["fastmcp_proxy"]["added_p50_ms"]
    rows.append(("FastMCP's own multi-server proxy, 10 children: added p50", f"{proxy:g} ms", "", "for comparison"))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main() -> None:
    """Measure everything, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results.json")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds, to see that it works")
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    figures: Figures = {
        "machine": {"python": platform.python_version(), "cores": os.cpu_count(), "system": platform.system()}
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: list[tuple[str, Callable[[Path, int, Say], Figures], int]] = [
            ("calls", measure_calls, 3000),
            ("http", measure_http, 1000),
            ("list_1000_ms", measure_list, 50),
            ("first_list_s", measure_starts, 5),
            ("fastmcp_proxy", measure_fastmcp_proxy, 10),
        ]
        for key, measure, rounds in parts:
            say(f"{key}: {measure.__doc__}")
            figures[key] = measure(folder, max(2, rounds // scale), say)
    print(table(figures))
    arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    say(f"written to {arguments.json}")


if __name__ == "__main__":
    main()
