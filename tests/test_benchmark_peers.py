"""The comparison with other aggregators: configs, names, streams, failures, and what the page makes of it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from benchmarks.peers.bounds import at_most
from benchmarks.peers.event_stream import Dechunked, EventReader
from benchmarks.peers.installing import interpreter, reason
from benchmarks.peers.table import PEERS, Peer
from benchmarks.peers.turns import taking_turns, tried
from benchmarks.rounds import Subject

ENTRIES: Mapping[str, Mapping[str, object]] = {"s0": {"command": "python", "args": ["child.py"]}}


def entry_in(config: object) -> object:
    """What stands in a config under the name of the server, however deep."""
    if not isinstance(config, Mapping):
        return None
    found = (entry_in(value) for value in config.values())
    return config.get("s0") or next((entry for entry in found if entry), None)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.label)
def test_a_config_has_the_server_with_its_command(peer: Peer) -> None:
    entry = entry_in(peer.config(ENTRIES))
    assert isinstance(entry, Mapping)
    assert entry.items() >= ENTRIES["s0"].items()


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.label)
def test_a_peer_is_pinned_and_says_how_it_joins_names(peer: Peer) -> None:
    assert all("==" in pin or "<" in pin for pin in peer.python)
    assert all(pin.rpartition("@")[0] for pin in peer.node)
    assert peer.tool("server", "tool").startswith("server")
    assert peer.tool("server", "tool").endswith("tool")


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_read_in_pieces_of_any_size(size: int) -> None:
    events = b"event: endpoint\r\ndata: /messages?id=1\r\n\r\n: a comment\n\ndata: {\ndata: }\n\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (events[:20], events[20:]))
    body, reader, found = Dechunked(), EventReader(), []
    for start in range(0, len(chunks), size):
        found += reader.fed(body.fed(chunks[start : start + size]))
    assert found == [(b"endpoint", b"/messages?id=1"), (b"", b"{\n}")]


def test_one_that_fails_is_left_out_and_says_why() -> None:
    left = iter([1.0, 2.0])

    def failing() -> dict[str, float]:
        return {"p50_ms": time} if (time := next(left, None)) else fail(RuntimeError("it ended with code 1"))

    good = Subject("good", lambda: {"p50_ms": 4.0}, at_end=lambda: {"rss_mb": 7.0})
    first, second = taking_turns([good, Subject("bad", failing)], "good", rounds=3, seconds=5)
    assert (first["p50_ms"], first["rss_mb"]) == (4.0, 7.0)
    assert second["absent"] == "it ended with code 1"
    assert "p50_ms" not in second


def test_a_ratio_is_to_the_anchor_of_the_same_round() -> None:
    slow = iter([9.0, 1.0, 10.0])
    times = iter([9.0, 3.0, 30.0])
    anchor = Subject("anchor", lambda: {"p50_ms": next(slow)})
    _, other = taking_turns([anchor, Subject("other", lambda: {"p50_ms": next(times)})], "anchor", 2, 5)
    assert other["against"]["anchor"]["p50_ms"] == [3, 3, 3]


@pytest.mark.parametrize(("warms_up", "median"), [(True, 2.5), (False, 1.5)])
def test_the_first_visit_counts_only_without_a_warm_up(warms_up: bool, median: float) -> None:
    times = iter([1.0, 2.0, 3.0])
    [line] = taking_turns([Subject("one", lambda: {"s": next(times)})], "", 2, 5, warms_up=warms_up)
    assert line["s"] == median
    assert len([*times]) == (0 if warms_up else 1)


def test_a_step_that_hangs_is_ended() -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert tried(lambda: {"never": time.sleep(60)}, 0.01) == {"absent": "not within 0.01 s"}
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RuntimeError("""not the expected answer: b'{"error":{"code":-1,"message":"no"}}'"""), "it answers: no"),
        (
            RuntimeError("""not: b'HTTP/1.1 500 Internal Server Error\\r\\nX: y'"""),
            "it answers: 500 Internal Server Error",
        ),
        (
            RuntimeError("the server ended with code 1: x\n  | Traceback\n  | mcp.shared.McpError: no\n  +----"),
            "it ended with code 1: mcp.shared.McpError: no",
        ),
        (KeyError("result"), "the answer lacks 'result'"),
        (RuntimeError("\x1b[31mit ended\n with code 1"), "it ended with code 1"),
        (ValueError("x" * 1000), "x" * 160 + "…"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_a_failure_is_told_in_a_line(error: Exception, why: str) -> None:
    assert tried(lambda: fail(error), 5) == {"absent": why}


def fail(error: Exception) -> NoReturn:
    raise error


def test_a_step_within_its_time_is_let_be() -> None:
    with at_most(60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("ERROR: Ignored: 1.0 Requires-Python >=3.12; 1.1 Requires-Python >=3.99\nERROR: No", "needs Python >=3.99"),
        ("WARNING: slow\nERROR: No matching distribution found for x", "No matching distribution found for x"),
        ("npm error code E404\nnpm error 404 Not Found - GET x", "404 Not Found"),
        ("", "it failed without a word"),
    ],
)
def test_why_an_installation_failed_is_its_line_that_says_so(told: str, why: str) -> None:
    assert reason(told).startswith(why)
    assert "GET" not in reason(told)


def test_a_newer_python_is_found_though_the_shim_of_pyenv_runs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = sys.version_info.minor + 1
    shim = program(tmp_path / "shims" / f"python3.{newer}", "exit 127")
    installed = program(tmp_path / "versions" / f"3.{newer}.1" / "bin" / "python", "exit 0")
    monkeypatch.setenv("PATH", str(shim.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert interpreter((3, newer)) == str(installed)
    installed.unlink()
    assert interpreter((3, newer)) == sys.executable


def program(path: Path, line: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path
