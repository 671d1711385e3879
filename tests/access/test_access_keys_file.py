"""The file of API keys: what is kept, what is let in, and what is said about a file that is wrong."""

from __future__ import annotations

import json
import logging
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fastmcp_aggregator.access.keys import ApiKey, new_key
from fastmcp_aggregator.access.keys_file import FollowedKeys, read_keys, write_keys
from fastmcp_aggregator.errors import ConfigError

ENTRY = {
    "id": "0123abcd",
    "name": "alice",
    "sha256": "0" * 64,
    "groups": ["web"],
    "created": "2026-01-31T12:00:00+00:00",
}


def written(folder: Path, *keys: ApiKey) -> Path:
    path = folder / "keys.json"
    write_keys(path, keys)
    return path


def of_document(folder: Path, document: Any) -> Path:
    path = folder / "keys.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(0o600)
    return path


def test_a_file_has_what_is_needed_to_know_a_key_and_not_the_key(tmp_path: Path) -> None:
    expires = datetime(2030, 1, 1, tzinfo=UTC)
    key, kept = new_key("alice", ["web", "docs"], expires)
    path = written(tmp_path, kept)
    secret = key.split("_", 2)[2]
    assert len(secret) == 43
    assert secret not in path.read_text()
    assert read_keys(path) == (kept,)
    assert (kept.name, kept.groups, kept.expires) == ("alice", {"web", "docs"}, expires)


def test_a_new_file_is_for_its_owner_only_and_a_service_that_may_read_one_still_may(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    written(tmp_path, new_key("alice", None, None)[1])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_writing_a_file_that_is_a_link_replaces_what_it_leads_to(tmp_path: Path) -> None:
    target = written(tmp_path)
    link = tmp_path / "link.json"
    link.symlink_to(target)
    write_keys(link, [new_key("alice", None, None)[1]])
    assert link.is_symlink()
    assert [key.name for key in read_keys(target)] == ["alice"]


def test_a_key_is_found_by_itself_and_by_nothing_like_it(tmp_path: Path) -> None:
    key, kept = new_key("alice", None, None)
    other, _ = new_key("alice", None, None)
    keys = FollowedKeys(written(tmp_path, kept))
    assert keys.find(key) == kept
    forged = f"fma_{kept.id}_{other.split('_', 2)[2]}"
    nearly = (key[:-1], key + "x", key.upper(), f"fma_{kept.id}_", f"fma_{kept.id}_\ud800")
    for wrong in (other, forged, *nearly, kept.id, kept.sha256, ""):
        assert keys.find(wrong) is None, wrong


@pytest.mark.parametrize(("seconds", "is_let_in"), [(60, True), (-1, False)])
def test_a_key_is_good_until_it_expires(tmp_path: Path, seconds: int, is_let_in: bool) -> None:
    key, kept = new_key("alice", None, datetime.now(UTC) + timedelta(seconds=seconds))
    assert (FollowedKeys(written(tmp_path, kept)).find(key) is not None) is is_let_in


def test_keys_that_come_and_go_while_the_program_runs_count_at_once(tmp_path: Path) -> None:
    first, kept_first = new_key("alice", None, None)
    second, kept_second = new_key("bob", None, None)
    path = written(tmp_path, kept_first)
    keys = FollowedKeys(path)
    assert (keys.find(first), keys.find(second)) == (kept_first, None)
    written(tmp_path, kept_second)
    assert (keys.find(first), keys.find(second)) == (None, kept_second)


@pytest.mark.parametrize("damage", ["gone", "not JSON", "writable by all"])
def test_while_the_file_cannot_be_trusted_nobody_is_let_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    key, kept = new_key("alice", None, None)
    path = written(tmp_path, kept)
    keys = FollowedKeys(path)
    if damage == "gone":
        path.unlink()
    else:
        path.write_text("{" if damage == "not JSON" else path.read_text() + " ")
        path.chmod(0o666 if damage == "writable by all" else 0o600)
    with caplog.at_level(logging.ERROR):
        assert [keys.find(key), keys.find(key)] == [None, None]
    assert len(caplog.records) == 1
    assert "all API keys are rejected until this is fixed" in caplog.text
    path.unlink(missing_ok=True)
    written(tmp_path, kept)
    assert keys.find(key) == kept


@pytest.mark.skipif(sys.platform == "win32", reason="has no such modes")
def test_a_file_is_spoilt_and_mended_by_its_mode_alone(tmp_path: Path) -> None:
    key, kept = new_key("alice", None, None)
    path = written(tmp_path, kept)
    keys = FollowedKeys(path)
    assert keys.find(key) == kept
    path.chmod(0o666)
    assert keys.find(key) is None
    path.chmod(0o600)
    assert keys.find(key) == kept


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "$: is not valid JSON at line 1"),
        ([], "$: must be an object with a list `keys`"),
        ({"keys": {}}, "$: must be an object with a list `keys`"),
        ({"keys": [1]}, "$.keys[0]: must be an object, not a number"),
        ({"keys": [{**ENTRY, "id": "xyz"}]}, "$.keys[0].id: must be 8 hexadecimal digits"),
        ({"keys": [{**ENTRY, "name": "a b"}]}, "$.keys[0].name: must have up to 64 letters"),
        ({"keys": [{**ENTRY, "sha256": "fma_x"}]}, "$.keys[0].sha256: must be a SHA-256 digest"),
        ({"keys": [{**ENTRY, "groups": "web"}]}, "$.keys[0].groups: must be a list of group ids"),
        ({"keys": [{**ENTRY, "groups": [1]}]}, "$.keys[0].groups: must be a list of group ids"),
        ({"keys": [{**ENTRY, "created": "soon"}]}, "$.keys[0].created: must be a time"),
        ({"keys": [{**ENTRY, "expires": 5}]}, "$.keys[0].expires: must be a time"),
        ({"keys": [{**ENTRY, "group": []}]}, "$.keys[0].group: is not a field of a key"),
        ({"keys": [{k: v for k, v in ENTRY.items() if k != "created"}]}, "$.keys[0]: has no `created`"),
        ({"keys": [ENTRY, ENTRY]}, "$.keys: has the same id twice"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_where_it_is(tmp_path: Path, document: Any, problem: str) -> None:
    path = of_document(tmp_path, document)
    with pytest.raises(ConfigError) as caught:
        read_keys(path)
    assert [str(detail)[: len(problem)] for detail in caught.value.details] == [problem]


def test_a_file_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.chmod(0o620)
    with pytest.raises(ConfigError, match="can be written to by others than its owner"):
        FollowedKeys(path)
