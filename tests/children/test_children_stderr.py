"""What a child says on stderr: passed on under its key, and the end of it kept."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doubles import Clock
from support.wire import PATIENCE

from fastmcp_aggregator.children.process.stderr import ChildStderr

pytestmark = pytest.mark.process

KIB = 1024


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Takes our stderr away. A test must call it: pytest puts its own in place before each test."""
    return lambda: monkeypatch.setattr(sys, "stderr", None)


def test_each_line_arrives_on_our_stderr_marked_with_the_server_key(capfd: pytest.CaptureFixture[str]) -> None:
    stderr = ChildStderr("files")
    stderr.feed(b"one\ntw")
    stderr.feed(b"o\r\n\n")
    assert capfd.readouterr().err == "[files] one\n[files] two\n[files] \n"


def test_what_a_server_says_of_roots_that_it_is_not_told_is_kept_and_not_passed_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    said = (
        "Failed to request roots: MCP error -32600: roots/list: several clients may share this instance of the server"
    )
    stderr = ChildStderr("files")
    stderr.feed(f"one\n{said}, so it is told the roots of none of them\ntwo\n".encode())
    assert capfd.readouterr().err == "[files] one\n[files] two\n"
    assert len(stderr.tail()) == 3


def test_what_stands_after_the_last_newline_arrives_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    stderr = ChildStderr("files")
    stderr.feed(b"Traceback\nKeyError")
    assert capfd.readouterr().err == "[files] Traceback\n"
    stderr.end()
    assert capfd.readouterr().err == "[files] KeyError\n"
    assert stderr.tail() == ("Traceback", "KeyError")


def test_nothing_is_written_to_our_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    ChildStderr("files").feed(b"one\n")
    assert capfd.readouterr().out == ""


def test_secrets_are_hidden_wherever_the_lines_go(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stderr = ChildStderr("files", tmp_path, secrets=lambda: ["s3cret"])
    stderr.feed(b"token s3c")
    stderr.feed(b"ret\nnext\ns3cret")
    stderr.end()
    assert capfd.readouterr().err == "[files] token ***\n[files] next\n[files] ***\n"
    assert stderr.tail() == ("token ***", "next", "***")


def test_lines_can_be_passed_on_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    ChildStderr('fi"les', as_json=True).feed(b"caf\xc3\xa9 \x1b[31m\n" + b"x" * 10 * KIB + b"\n")
    entry, long = map(json.loads, capfd.readouterr().err.splitlines())
    assert datetime.fromisoformat(entry.pop("timestamp")).tzinfo is not None
    assert entry == {"event": "café \x1b[31m", "server": 'fi"les', "level": "info", "logger": "stderr"}
    assert set(long["event"]) == {"x"}


HARMFUL = [*"\0\a\b\v\f\r\x1b\x7f\x80\x85\x9b\x9d\u200e\u2028\u2029\u202e\u2066\ufeff\U000e0041"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_terminal_obeys_nothing_of_what_is_passed_on(capfd: pytest.CaptureFixture[str], as_json: bool) -> None:
    said = "".join(f"<{character}>" for character in HARMFUL)
    ChildStderr("files", as_json=as_json).feed(f"{said}\n\x1b]0;title\a\n".encode())
    passed_on = capfd.readouterr().err
    assert not [character for character in HARMFUL if character in passed_on]
    assert len(passed_on.split("\n")) == 3
    if as_json:
        assert json.loads(passed_on.split("\n")[0])["event"] == said


def test_what_is_escaped_is_passed_on_in_pieces_that_do_not_block(capfd: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        ChildStderr("files", as_json=as_json).feed("\U000e0041".encode() * 5000 + b"\n")
        assert 0 < len(capfd.readouterr().err.encode()) <= 4096


def test_a_tab_stays(capfd: pytest.CaptureFixture[str]) -> None:
    ChildStderr("files").feed(b"\tat main\n")
    assert capfd.readouterr().err == "[files] \tat main\n"


def test_a_very_long_line_is_passed_on_in_part_and_kept_whole(capfd: pytest.CaptureFixture[str]) -> None:
    stderr = ChildStderr("files")
    stderr.feed(b"x" * 10 * KIB + b"\n")
    passed_on = capfd.readouterr().err
    assert passed_on.startswith("[files] xxx")
    assert passed_on.endswith("x\n")
    assert len(passed_on) < 4 * KIB
    assert stderr.tail() == ("x" * 10 * KIB,)


def test_the_tail_has_the_last_lines_oldest_first(silence: Callable[[], None]) -> None:
    silence()
    stderr = ChildStderr("files")
    stderr.feed(b"".join(b"%d\n" % number for number in range(100)))
    assert stderr.tail(3) == ("97", "98", "99")
    assert stderr.tail() == tuple(str(number) for number in range(80, 100))
    assert len(stderr.tail(1000)) == 100


def test_the_tail_of_a_child_that_said_nothing_is_empty() -> None:
    stderr = ChildStderr("files")
    stderr.end()
    assert stderr.tail() == ()


@given(st.lists(st.binary(max_size=9 * KIB), max_size=40))
def test_the_tail_is_the_end_of_what_was_said_and_at_most_64_kib_of_it(chunks: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        stderr = ChildStderr("files")
        for chunk in chunks:
            stderr.feed(chunk)
        stderr.end()
    said = b"".join(chunks).removesuffix(b"\n").split(b"\n") if any(chunks) else []
    decoded = [line.decode(errors="replace").rstrip("\r") for line in said]
    tail = stderr.tail(10**6)
    kept = said[len(said) - len(tail) :]
    assert list(tail) == decoded[len(decoded) - len(tail) :]
    assert sum(len(line) + 1 for line in kept) <= 64 * KIB
    assert len(tail) == len(said) or sum(len(line) + 1 for line in said[-len(tail) - 1 :]) > 64 * KIB


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"x\n",
        b"x" * 99 + b"\n",
        "茶🍵".encode() * 99 + b"\n",
        b"\xff" * 99 + b"\n",
        b"x" * 64 * KIB + b"\n",
        b"x",
    ],
    ids=["empty", "one letter", "ordinary", "not ASCII", "not UTF-8", "over the limit", "without an end"],
)
def test_a_flood_costs_a_few_times_the_tail_and_no_more(silence: Callable[[], None], line: bytes) -> None:
    silence()
    stderr = ChildStderr("files")
    chunk = line * max(1, 4 * KIB // len(line))
    tracemalloc.start()
    try:
        for _ in range(256 * KIB // len(chunk)):
            stderr.feed(chunk)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4096 * KIB


class CountingStderr(io.StringIO):
    """Takes everything, and counts how often it is written to. Its descriptor is one that is always writable."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def fileno(self) -> int:
        return sys.__stdout__.fileno()

    def write(self, text: str) -> int:
        self.sizes.append(len(text.encode()))
        return super().write(text)


@pytest.mark.parametrize("letter", ["x", "茶", "🍵"])
def test_a_flood_of_short_lines_is_passed_on_in_order_and_in_few_writes_that_a_pipe_takes_whole(
    monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    ours = CountingStderr()
    monkeypatch.setattr(sys, "stderr", ours)
    lines = [f"{number}{letter}" for number in range(1000)]
    ChildStderr("files").feed("".join(f"{line}\n" for line in lines).encode())
    assert ours.getvalue().splitlines() == [f"[files] {line}" for line in lines]
    assert len(ours.sizes) < len(lines) / 50
    assert max(ours.sizes) <= 4096


def test_a_server_that_floods_stderr_does_not_drown_what_others_say(capfd: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    stderr = ChildStderr("loud", clock=clock)
    for _ in range(30):
        stderr.feed(b"again\n" * 100)
    told = "[loud] more than 1000 lines in 10 s: the others are left out here"
    assert capfd.readouterr().err.splitlines() == [*["[loud] again"] * 1000, told]
    clock.now += 10
    stderr.feed(b"less\n")
    assert capfd.readouterr().err == "[loud] less\n"
    assert stderr.tail(3001) == (*["again"] * 3000, "less")
    assert stderr.dropped_lines == 2000


def test_who_says_thousands_of_lines_at_once_is_not_read_for_a_while(silence: Callable[[], None]) -> None:
    silence()
    stderr = ChildStderr("loud")
    assert stderr.feed(b"one\n" * 1000) == 0.0
    assert stderr.feed(b"\n" * 64 * KIB) == 64 * KIB / 100_000


def test_bytes_that_are_not_utf_8_are_replaced_and_the_rest_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    stderr = ChildStderr("files")
    stderr.feed(b"caf\xe9 \xff\xfe na\xc3\xafve\n")
    assert stderr.tail() == ("caf\ufffd \ufffd\ufffd naïve",)
    assert "naïve" in capfd.readouterr().err


def test_a_character_cut_in_two_by_the_pipe_is_put_together_again(silence: Callable[[], None]) -> None:
    silence()
    stderr = ChildStderr("files")
    for byte in "čaj 茶 🍵\n".encode():
        stderr.feed(bytes([byte]))
    assert stderr.tail() == ("čaj 茶 🍵",)


@pytest.mark.parametrize("broken", [None, io.StringIO()], ids=["none", "without a descriptor"])
def test_without_a_usable_stderr_of_ours_lines_are_kept_all_the_same(
    monkeypatch: pytest.MonkeyPatch, broken: io.StringIO | None
) -> None:
    monkeypatch.setattr(sys, "stderr", broken)
    stderr = ChildStderr("files")
    stderr.feed(b"one\n")
    assert stderr.tail() == ("one",)


def test_a_closed_stderr_of_ours_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        stderr = ChildStderr("files")
        stderr.feed(b"one\n")
        stderr.feed(b"two\n")
        assert stderr.tail() == ("one", "two")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


@pytest.mark.skipif(sys.platform == "win32", reason="select on pipes is POSIX")
def test_a_client_that_never_reads_our_stderr_does_not_stop_us() -> None:
    code = """
from fastmcp_aggregator.children.process.stderr import ChildStderr
from fastmcp_aggregator.observability.redaction import Redactor
stderr = ChildStderr("files")
for number in range(20_000):
    stderr.feed(b"%d %s\\n" % (number, b"x" * 200))
print(stderr.tail(1)[0][:5])
"""
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writing, timeout=PATIENCE, check=True
        )
        os.close(writing)
        passed_on = os.read(reading, KIB * KIB)
    finally:
        os.close(reading)
    assert done.stdout == b"19999\n"
    assert passed_on.startswith(b"[files] 0 xxx"), "what fitted into the pipe is there"
    *whole, _ = passed_on.split(b"\n")
    assert all(line.startswith(b"[files] ") and line.endswith(b"xxx") for line in whole), "no line is torn"
