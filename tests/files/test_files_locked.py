"""Several processes that change one file: nothing of what any of them does is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.harness import PATIENCE

from fastmcp_aggregator.access.keys_file import read_keys
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.locked import locked
from fastmcp_aggregator.pinning.definitions import ServerPins, pinned
from fastmcp_aggregator.pinning.pins_file import add_pins, read_pins


def test_a_lock_file_that_is_a_link_leads_nowhere(tmp_path: Path) -> None:
    """It may have come with somebody's repository."""
    precious = tmp_path / "precious"
    precious.write_text("x")
    (tmp_path / ".a.json.lock").symlink_to(precious)
    with pytest.raises(AggregatorError, match="cannot write"), locked(tmp_path / "a.json"):
        pytest.fail("it is locked")
    assert precious.read_text() == "x"


def test_a_lock_is_of_one_at_a_time_through_a_link_too(tmp_path: Path) -> None:
    path, link = tmp_path / "a.json", tmp_path / "link.json"
    path.write_text("0")
    link.symlink_to(path)

    def count(name: Path) -> None:
        for _ in range(5):
            with locked(name):
                path.write_text(str(int(path.read_text()) + 1))

    threads = [threading.Thread(target=count, args=(name,)) for name in (path, link) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert path.read_text() == "30"
    assert sorted(tmp_path.iterdir()) == [path, link]  # no lock is left behind


def test_a_lock_that_a_process_left_when_it_was_killed_is_taken_and_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.lock").touch(0o600)
    with locked(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".a.lock").symlink_to(tmp_path / "other")
    with pytest.raises(AggregatorError, match="cannot write"), locked(tmp_path / "a"):
        pytest.fail("entered")
    assert not (tmp_path / "other").exists()


def test_who_waits_for_too_long_is_told_and_where_no_folder_is_nobody_waits(tmp_path: Path) -> None:
    with locked(tmp_path / "a"), ThreadPoolExecutor() as pool:

        def second() -> None:
            with locked(tmp_path / "a", timeout=0.05):
                pytest.fail("entered")

        with pytest.raises(AggregatorError, match="is being changed by another process; try again"):
            pool.submit(second).result(PATIENCE)
    with locked(tmp_path / "none" / "a"):
        pass


def test_pins_of_several_processes_come_together(tmp_path: Path) -> None:
    path = tmp_path / "pins.json"
    with ThreadPoolExecutor(8) as pool:
        for done in [
            pool.submit(add_pins, path, {f"s{n}": ServerPins(None, {"t": pinned({"n": n})})}) for n in range(16)
        ]:
            done.result(PATIENCE)
    assert set(read_pins(path)) == {f"s{n}" for n in range(16)}


@pytest.mark.process
def test_keys_that_eight_processes_make_and_revoke_at_once_are_all_as_they_were_told(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    program = [sys.executable, "-m", "fastmcp_aggregator", "keys"]

    def all_at_once(*actions: tuple[str, str]) -> list[int]:
        lines = [[*program, action, name, "--file", str(file)] for action, name in actions]
        with ThreadPoolExecutor(len(lines)) as pool:
            done = pool.map(
                lambda line: subprocess.run(line, capture_output=True, timeout=PATIENCE, check=False), lines
            )
            return [ended.returncode for ended in done]

    old, new = [f"old{n}" for n in range(8)], [f"new{n}" for n in range(4)]
    assert all_at_once(*(("create", name) for name in old)) == [0] * 8
    assert sorted(key.name for key in read_keys(file)) == sorted(old)
    assert all_at_once(*(("create", name) for name in new), *(("revoke", name) for name in old[:4])) == [0] * 8
    assert sorted(key.name for key in read_keys(file)) == sorted(new + old[4:])
    assert len(json.loads(file.read_text())["keys"]) == 8
