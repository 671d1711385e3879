"""Writing a file as a whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from fastmcp_aggregator.files.atomic import PRIVATE, PUBLIC, staged, write_whole


@pytest.mark.parametrize("mode", [PRIVATE, PUBLIC])
def test_a_file_has_the_text_and_the_mode_whatever_it_had_before(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o640)
    write_whole(path, "äfter\n", mode=mode)
    assert path.read_text(encoding="utf-8") == "äfter\n"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_file_that_cannot_be_written_in_full_stays_as_it_was_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half of a pair: \ud800", mode=PRIVATE)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_staged_changes_only_when_it_is_put_in_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with staged(path, "after", mode=PRIVATE) as put_in_place:
        assert path.read_text() == "before"
        put_in_place()
        assert path.read_text() == "after"
    with staged(path, "never", mode=PRIVATE):
        pass
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="files have no modes there")
@pytest.mark.parametrize(("before", "after"), [(0o640, 0o640), (0o644, 0o644), (0o666, 0o644), (0o600, 0o600)])
def test_who_may_read_a_file_still_may_where_that_is_kept(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "file"
    write_whole(path, "new", mode=PRIVATE, keeps_readers=True)
    assert stat.S_IMODE(path.stat().st_mode) == PRIVATE
    path.chmod(before)
    write_whole(path, "after", mode=PRIVATE, keeps_readers=True)
    assert stat.S_IMODE(path.stat().st_mode) == after


@pytest.mark.skipif(sys.platform == "win32", reason="files have no owners there")
def test_a_file_whose_owner_cannot_be_kept_is_for_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o640)
    owners = []

    def refused(descriptor: int, *owner: int) -> None:
        owners.append(owner)
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refused)
    write_whole(path, "after", mode=PRIVATE, keeps_readers=True)
    assert owners == [(path.stat().st_uid, path.stat().st_gid)]
    assert stat.S_IMODE(path.stat().st_mode) == PRIVATE
