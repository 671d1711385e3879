"""The benchmark: what is made of its figures, and that it measures."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.clients import Connection, body_of
from benchmarks.rounds import Subject, interleaved
from benchmarks.run import added_to
from benchmarks.tables import table
from benchmarks.targets import reached

ROOT = Path(__file__).parents[1]


def subject(name: str, times: Iterator[float], visits: list[str], **about: object) -> Subject:
    def visit() -> dict[str, float]:
        visits.append(name)
        return {"p50_ms": next(times)}

    return Subject(name, visit, about)


def measured(rounds: int, **times: Callable[[int], float]) -> tuple[list[dict], list[str]]:
    """What is made of such times, given for each round, and in which order the subjects were visited."""
    visits: list[str] = []
    subjects = [subject(name, map(of, range(rounds + 1)), visits) for name, of in times.items()]
    return interleaved(subjects, ["anchor"], rounds), visits


def test_subjects_take_turns_in_an_order_that_rotates() -> None:
    _, visits = measured(2, anchor=lambda _: 1, a=lambda _: 2, b=lambda _: 3)
    assert visits == ["anchor", "a", "b", "a", "b", "anchor", "b", "anchor", "a"]


def test_a_ratio_is_of_figures_of_the_same_round() -> None:
    slowdown = [1, 1, 10, 1, 100, 7]
    (_, line), _ = measured(5, anchor=lambda number: slowdown[number], a=lambda number: 3 * slowdown[number])
    assert line["against"]["anchor"]["p50_ms"] == [3, 3, 3]


def test_the_first_round_does_not_count() -> None:
    (_, line), _ = measured(3, anchor=lambda _: 1, a=lambda number: 2 if number else 1000)
    assert line["p50_ms"] == 2
    assert line["against"]["anchor"]["p50_ms"] == [2, 2, 2]


def test_a_package_is_set_against_the_same_of_the_first() -> None:
    visits: list[str] = []
    subjects = [
        subject(f"{package}, {era}", iter([time] * 3), visits, package=package, era=era)
        for package, era, time in (("old", "x", 8.0), ("old", "y", 6.0), ("new", "x", 2.0), ("new", "y", 3.0))
    ]
    old_x, old_y, new_x, new_y = interleaved(subjects, [], 2)
    assert old_x["against"] == old_y["against"] == {}
    assert new_x["against"]["old"]["p50_ms"][1] == 0.25
    assert new_y["against"]["old"]["p50_ms"][1] == 0.5
    assert "0.25 [0.25–0.25]" in table([old_x, new_x])


@pytest.mark.parametrize(("times", "verdict"), [((1.0, 4.9), "reached"), ((1.0, 5.1), "missed")])
def test_a_target_is_reached_by_all_figures_or_not_at_all(times: tuple[float, ...], verdict: str) -> None:
    rows = {"lists": [{"name": f"new, {i}", "package": "new", "p50_ms": t} for i, t in enumerate(times)]}
    ((what, _, bound, found),) = reached(rows, "new")
    assert (what, bound, found) == ("repeated list of 1000 tools", "≤ 5 ms", verdict)


def of_run(commit: str, load: float, **rows: object) -> dict:
    return {"machine": {"load": load}, "packages": {"new": {"commit": commit}}, "size": {"rounds": 4}, "rows": rows}


def test_a_run_in_parts_keeps_the_rows_before_and_tells_the_highest_load() -> None:
    joined = added_to(of_run("a", 3.0, stdio=[1]), of_run("a", 0.5))
    assert joined["rows"] == {"stdio": [1]}
    assert joined["machine"]["load"] == 3.0


def test_parts_of_other_commits_are_not_joined() -> None:
    with pytest.raises(SystemExit):
        added_to(of_run("a", 3.0, stdio=[1]), of_run("b", 0.5))


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
RESPONSES = {
    "with a length": [HEAD + b"content-le", b"ngth: 4\r\n", b"\r\n12", b"34"],
    "in chunks": [HEAD + b"transfer-encoding: chunked\r\n\r", b"\nc\r\ndata: 10\r\n\r\n", b"\r\n", b"0\r\n", b"\r\n"],
    "without a body": [b"HTTP/1.1 202 Accepted\r\n", b"\r\n"],
}


@pytest.mark.parametrize("pieces", RESPONSES.values(), ids=RESPONSES)
def test_a_response_is_read_to_its_end_and_no_further(pieces: list[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(listener.getsockname()[1])
        peer, _ = listener.accept()
        with peer, connection.sock:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(2):
                for piece in pieces[:-1]:
                    peer.sendall(piece)
                    assert connection.read() is None
                peer.sendall(pieces[-1])
                assert connection.read() == b"".join(pieces)


@pytest.mark.parametrize(
    ("response", "body"),
    [
        (HEAD + b'\r\n{"result": 1}', b'{"result": 1}'),
        (HEAD + b'\r\nevent: message\r\ndata: {"method": 1}\r\n\r\ndata: {"result": 1}\r\n\r\n', b' {"result": 1}'),
    ],
)
def test_the_body_of_a_stream_is_its_last_event(response: bytes, body: bytes) -> None:
    assert body_of(response) == body


@pytest.mark.process
def test_the_benchmark_measures_both_fronts_in_both_eras(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    size = ["--rounds", "1", "--calls", "2", "--burst", "32"]
    command = [sys.executable, "-m", "benchmarks.run", "--rows", "talking", *size, "--json", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=280)
    rows = json.loads(file.read_text())["rows"]
    assert len(rows["talking"]) == 8
    assert all(line["p50_ms"] > 0 for line in rows["talking"])


@pytest.mark.process
def test_random_calls_leave_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.random_calls", "--calls", "600", "--seed", "1", "--json", str(file)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=280, stdout=subprocess.DEVNULL)
    report = json.loads(file.read_text())
    assert report["calls"] >= 600
    assert report["paths"]["answered"] > 100
