"""A key that is made once and kept."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastmcp_aggregator.files.kept_key import kept_key


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "home" / "key"
    key = kept_key(path)
    assert len(key) == 32
    assert kept_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_all_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        keys = set(threads.map(kept_key, [tmp_path / "key"] * 64))
    assert len(keys) == 1


@pytest.mark.parametrize("text", ["", "00", "no key", "00" * 33])
def test_what_is_no_key_is_not_taken_for_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(ValueError, match=r"key|hex"):
        kept_key(tmp_path / "key")
