"""The audit log: every entry in order, nothing waits for the disk, and nothing is lost without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE, until

from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.rotating import RotatingFile
from fastmcp_aggregator.observability.audit_log import AuditLog, StandardOutput
from fastmcp_aggregator.pipe.bucket import TokenBucket

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="named pipes and /dev/full are POSIX")


def log_in(path: Path, *, refuses: bool = False, **bounds: Any) -> AuditLog:
    return AuditLog(RotatingFile(path, max_bytes=1024**3, keep=1), rejects=refuses, **bounds)


def entries_of(text: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


class HungDisk:
    """A named pipe stands for a disk that hangs: what it cannot hold blocks the writer until somebody reads it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit"
        os.mkfifo(self.path)
        self._end = os.open(self.path, os.O_RDWR)

    def read_until(self, last: bytes) -> bytes:
        """Everything up to the line with these words."""
        text = b""
        while last not in text or not text.endswith(b"\n"):
            text += os.read(self._end, 65536)
        return text

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def hung_disk(tmp_path: Path) -> Iterator[HungDisk]:
    disk = HungDisk(tmp_path)
    yield disk
    disk.close()


# What is written.


def test_an_entry_is_a_line_of_json_with_its_time_and_its_event_first(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    with log_in(tmp_path / "audit") as log:
        log.record("call", {"tool": "lög\n", "error_code": None, "arguments": {"a": "\ud83d"}})
    (entry,) = entries_of((tmp_path / "audit").read_text())
    assert list(entry) == ["time", "event", "tool", "arguments", "id"]
    assert entry["event"] == "call"
    assert entry["tool"] == "lög\n"
    assert entry["arguments"] == {"a": "\ud83d"}
    assert abs((datetime.fromisoformat(entry["time"]) - before).total_seconds()) < 60


@pytest.mark.parametrize(
    "text", ["plain", '"quoted" \\', "lög", "\ud83d", "\x1b[2J", "\x7f", "\x9b", "\u202e", "\u2028"]
)
def test_an_entry_is_printable_ascii(tmp_path: Path, text: str) -> None:
    with log_in(tmp_path / "audit") as log:
        log.record("call", {"tool": text, "duration_ms": 0.25, "arguments": {"n": [2**70, 1e300]}})
    written = (tmp_path / "audit").read_bytes()
    assert written.removesuffix(b"\n").decode("ascii").isprintable()
    (entry,) = entries_of(written)
    assert (entry["tool"], entry["duration_ms"], entry["arguments"]) == (text, 0.25, {"n": [2**70, 1e300]})


def test_entries_that_come_while_others_are_written_follow_by_themselves(tmp_path: Path) -> None:
    disk = HungDisk(tmp_path)
    with log_in(disk.path) as log:
        for number in range(3):
            log.record("call", {"n": number})
            assert entries_of(disk.read_until(b'"n":%d' % number))[-1]["n"] == number
    disk.close()


def test_entries_of_many_threads_are_all_written_each_threads_in_order(tmp_path: Path) -> None:
    with log_in(tmp_path / "audit") as log:
        threads = [
            threading.Thread(target=lambda t=t: [log.record("call", {"thread": t, "n": n}) for n in range(500)])
            for t in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    entries = entries_of((tmp_path / "audit").read_text())
    assert [[e["n"] for e in entries if e["thread"] == t] for t in range(8)] == [list(range(500))] * 8


def test_a_log_that_is_used_again_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = log_in(tmp_path / "audit")
    for number in range(3):
        with log:
            log.record("call", {"n": number})
        assert [thread for thread in threading.enumerate() if thread.name == "audit log"] == []
    assert [entry["n"] for entry in entries_of((tmp_path / "audit").read_text())] == [0, 1, 2]


def test_texts_without_end_are_cut(tmp_path: Path) -> None:
    with log_in(tmp_path / "audit") as log:
        log.record("denied", {"uri": "x" * 1_000_000})
    (entry,) = entries_of((tmp_path / "audit").read_text())
    assert entry["uri"] == "x" * 2048 + "…"


@pytest.mark.parametrize("character", ["x", "é", "\x1b", "\U0001f600"])
def test_a_text_is_cut_by_what_it_takes_in_the_log(character: str, tmp_path: Path) -> None:
    with log_in(tmp_path / "audit") as log:
        log.record("denied", {"uri": character * 4000})
    text = (tmp_path / "audit").read_text()
    (entry,) = entries_of(text)
    assert 2000 < len(text) < 2300
    assert entry["uri"].strip(character) == "…"


def test_on_stdout_entries_are_lines_too(capfd: pytest.CaptureFixture[str]) -> None:
    with AuditLog(StandardOutput()) as log:
        log.record("call", {"n": 1})
    assert [entry["n"] for entry in entries_of(capfd.readouterr().out)] == [1]


def test_a_log_that_cannot_be_opened_says_so_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AggregatorError, match=r"the audit log .*/file/audit cannot be opened: Not a directory"):
        log_in(tmp_path / "file" / "audit").__enter__()


# A disk that does not play along.


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("refuses", [False, True])
async def test_a_full_disk_raises_an_alarm_and_lets_calls_be_refused_if_that_is_set(
    refuses: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with log_in(Path("/dev/full"), refuses=refuses, retry_pause=0.01) as log:
        assert not log.must_reject
        log.record("call", {"n": 1})
        await until(lambda: caplog.messages)
        assert log.must_reject is refuses
        log.record("call", {"n": 2})
    then = "calls are refused" if refuses else "entries wait, as many as there is room for"
    assert caplog.messages == [
        f"the audit log /dev/full cannot be written: No space left on device; until it can, {then}",
        "the audit log /dev/full has lost 2 entries at its end",
    ]
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    assert log.lost == 2


def test_when_a_full_disk_has_room_again_nothing_is_lost_and_no_line_is_torn(tmp_path: Path) -> None:
    """A limit on the size of files stands for the end of the disk: writing fails in the same way, after a part."""
    code = """
import logging, resource, sys, time
from pathlib import Path
from fastmcp_aggregator.observability import audit_log as audit
from fastmcp_aggregator.files.rotating import RotatingFile
logging.basicConfig(format="%(message)s")
path = Path(sys.argv[1])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
with audit.AuditLog(RotatingFile(path, max_bytes=10**9, keep=1), rejects=True, retry_pause=0.01) as log:
    for number in range(100):
        log.record("call", {"n": number})
    while not log.must_reject:
        time.sleep(0.001)
    log.record("call", {"n": 100})
    assert path.stat().st_size == 1000, path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    while log.must_reject:
        time.sleep(0.001)
"""
    path = tmp_path / "audit"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert [entry["n"] for entry in entries_of(path.read_text())] == list(range(101))
    assert done.stderr.splitlines() == [
        f"the audit log {path} cannot be written: File too large; until it can, calls are refused",
        f"the audit log {path} is written again; 0 entries were lost",
    ]


def test_entries_that_there_is_no_room_for_are_lost_which_both_logs_say(
    hung_disk: HungDisk, caplog: pytest.LogCaptureFixture
) -> None:
    with log_in(hung_disk.path, queue_bytes=100_000) as log:
        for number in range(10_000):
            log.record("call", {"n": number, "tool": "x" * 100})
        lost = log.lost
        assert lost > 1000
        entries: list[dict[str, Any]] = []
        while sum(entry.get("entries", 1) for entry in entries) < 10_000:
            entries += entries_of(hung_disk.read_until(b'"lost"'))
        log.record("call", {"n": "after"})
        (after,) = entries_of(hung_disk.read_until(b'"after"'))
    numbers = [entry["n"] for entry in entries if entry["event"] == "call"]
    assert numbers == sorted(numbers)
    assert len(numbers) + lost == 10_000
    assert sum(entry["entries"] for entry in entries if entry["event"] == "lost") == lost
    assert entries[-1]["event"] == "lost"
    assert after["n"] == "after"
    (alarm,) = caplog.messages
    assert alarm.startswith(f"the audit log {hung_disk.path} has lost 1 entries")


def test_calls_are_refused_while_there_still_is_room_for_those_in_flight(hung_disk: HungDisk) -> None:
    with log_in(hung_disk.path, refuses=True, queue_bytes=1_000_000) as log:
        made = 0
        while not log.must_reject:
            log.record("call", {"n": made, "tool": "x" * 1000})
            made += 1
        for _ in range(300):
            log.record("call", {"n": made, "tool": "x" * 1000})
            made += 1
        assert log.lost == 0
        log.record("call", {"n": "last"})
        entries = entries_of(hung_disk.read_until(b'"last"'))
        assert [entry["n"] for entry in entries] == [*range(made), "last"]


def test_a_disk_that_hangs_does_not_hold_up_the_end(hung_disk: HungDisk, caplog: pytest.LogCaptureFixture) -> None:
    with log_in(hung_disk.path, close_timeout=0.1) as log:
        for _ in range(1000):
            log.record("call", {"tool": "x" * 1000})
        log.record("call", {"n": "last"})
    assert caplog.messages == [f"the audit log {hung_disk.path} was not closed within 0.1 s"]
    hung_disk.read_until(b'"last"')


def test_alarms_have_a_pause_between_them(
    hung_disk: HungDisk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with log_in(hung_disk.path, queue_bytes=0) as log:
        for _ in range(100):
            log.record("call", {})
        assert len(caplog.messages) == 1
        monkeypatch.setattr(log, "_alarms", TokenBucket(burst=1, rate=1))
        log.record("call", {})
        assert "has lost 101 entries" in caplog.messages[1]
