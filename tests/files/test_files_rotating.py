"""Files of lines: how large they become, which are kept, who may read them, and what others do to them."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from fastmcp_aggregator.files.rotating import RotatingFile

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes and links are POSIX")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def write(file: RotatingFile, *lines: str) -> None:
    for line in lines:
        data = f"{line}\n".encode()
        assert file.write(data) == len(data)


def test_a_full_file_gets_a_number_and_the_oldest_goes(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log", max_bytes=8, keep=2)
    write(file, "one", "two", "three", "four", "five", "a line that is too long by itself", "six")
    assert contents(tmp_path) == {"log": "six\n", "log.1": "a line that is too long by itself\n", "log.2": "five\n"}


def test_what_was_there_at_the_start_counts(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    write(RotatingFile(tmp_path / "log", max_bytes=8, keep=1), "now")
    assert contents(tmp_path) == {"log": "now\n", "log.1": "before\n"}


def test_a_line_that_an_earlier_program_did_not_finish_is_not_glued_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntw")
    write(RotatingFile(tmp_path / "log", max_bytes=100, keep=1), "three")
    assert contents(tmp_path) == {"log": "one\ntw\nthree\n"}


def test_the_rest_of_a_line_is_written_where_its_beginning_is(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log", max_bytes=8, keep=1)
    for part in (b"one\nand a ha", b"lf, and the other half\n", b"two\n"):
        file.write(part)
    assert contents(tmp_path) == {"log": "two\n", "log.1": "one\nand a half, and the other half\n"}


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_file_that_somebody_has_taken_away_is_made_again(tmp_path: Path, how: str) -> None:
    file = RotatingFile(tmp_path / "log", max_bytes=100, keep=1)
    write(file, "one")
    if how == "moved":
        (tmp_path / "log").rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "log").unlink()
    if how == "replaced":
        (tmp_path / "log").write_text("new\n")
    write(file, "two")
    assert (tmp_path / "log").read_text() == ("new\ntwo\n" if how == "replaced" else "two\n")


def test_files_and_their_directories_are_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(RotatingFile(tmp_path / "a" / "log", max_bytes=1, keep=1), "one", "two")
    finally:
        os.umask(before)
    assert {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "a").iterdir()} == {
        "log": 0o600,
        "log.1": 0o600,
    }
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_a_link_that_somebody_has_put_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "log").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic link"):
        RotatingFile(tmp_path / "log", max_bytes=100, keep=1).write(b"x\n")
    assert (tmp_path / "target").read_text() == "precious"


def test_a_file_can_be_closed_twice_and_used_again(tmp_path: Path) -> None:
    file = RotatingFile(tmp_path / "log", max_bytes=100, keep=1)
    write(file, "one")
    file.close()
    file.close()
    write(file, "two")
    assert contents(tmp_path) == {"log": "one\ntwo\n"}
