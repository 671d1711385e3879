"""The log of a hub: the time of each line, and what is done when it is full."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.local_hub.log_file import LOG_SIZE_LIMIT, DatedLines, rotate_if_full


def test_each_line_has_one_time_however_it_is_written() -> None:
    written = BytesIO()
    lines = DatedLines(written)
    for piece in ("one ", "line\ntwo\n", '{"event": "json"}\n', "2026-01-01T00:00:00Z structlog\n", "ü\n"):
        lines.write(piece)
    lines.flush()
    shown = re.sub(r"(?m)^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "T ", written.getvalue().decode())
    assert shown == 'T one line\nT two\n{"event": "json"}\nT structlog\nT ü\n'


@contextmanager
def log_in(folder: Path) -> Iterator[Path]:
    """One that this process writes to, as a hub does, on stdout and stderr."""
    path, ours = folder / "hub.log", (os.dup(1), os.dup(2))
    descriptor = system.open_log(str(path))
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)
    try:
        yield path
    finally:
        for number, descriptor in zip((1, 2), ours, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


def test_a_full_log_is_set_aside_and_what_is_written_then_begins_another(tmp_path: Path) -> None:
    with log_in(tmp_path) as log:
        os.write(2, b"x" * LOG_SIZE_LIMIT)
        rotate_if_full(str(log))
        before = log.stat().st_size
        os.write(2, b"!")
        rotate_if_full(str(log))
        os.write(1, b"on stdout, ")
        os.write(2, b"on stderr")
    assert (before, log.read_text()) == (LOG_SIZE_LIMIT, "on stdout, on stderr")
    assert log.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "hub.log.1").stat().st_size == LOG_SIZE_LIMIT + 1


def test_a_file_that_is_not_what_is_written_to_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.log"
    other.write_text("of another hub")
    with log_in(tmp_path):
        os.write(2, b"x" * (LOG_SIZE_LIMIT + 1))
        rotate_if_full(str(other))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["hub.log", "other.log"]
