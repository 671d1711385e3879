"""Files of keys and of groups with anything in them: they are read, or refused with every problem; nobody is let in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzzing import SCALE, Draw, Watch, draws
from garbage import Garbage

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import FollowedKeys, read_keys
from fastmcp_aggregator.auth.verifiers import KeyToken
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.groups import load_groups

pytestmark = pytest.mark.fuzz

FILES = 1000
KEY, KEPT = new_key("ann", ["red", "blue"], None)
KEYS = {
    "keys": [
        {
            "id": KEPT.id,
            "name": KEPT.name,
            "sha256": KEPT.sha256,
            "groups": ["blue", "red"],
            "created": KEPT.created.isoformat(),
            "expires": "2999-01-31T12:00:00+00:00",
        }
    ]
}
GROUPS = {
    "red": {"servers": ["a"], "tools": ["a:*", "echo"], "name": "Red", "description": "?", "tool_search": True},
    "blue": {"id": "blue", "servers": ["a", "b"]},
}


def check_keys(path: Path) -> None:
    path.chmod(0o600)
    read_keys(path)
    keys = FollowedKeys(path)
    assert keys.find("fma_01234567_" + "A" * 43) is None
    found = keys.find(KEY)
    if found is not None:
        assert (found.id, found.name, found.sha256) == (KEPT.id, found.name, KEPT.sha256)
        KeyToken.of(found, keys).lets_in({"red"})


def check_groups(path: Path) -> None:
    for group in load_groups(path, ["a", "b"]):
        assert set(group.servers) <= {"a", "b"}
        json.dumps([group.id, group.name, group.description, group.tools], ensure_ascii=False).encode()


def written(draw: Draw, good: Any) -> bytes:
    garbage = Garbage(draw.random, [])
    data = garbage.mutated(good)
    return garbage.damaged(data) if garbage.random.random() < 0.3 else data


@pytest.mark.parametrize(("what", "good", "check"), [("keys", KEYS, check_keys), ("groups", GROUPS, check_groups)])
def test_whatever_a_file_has_it_is_read_or_refused(
    what: str, good: Any, check: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / f"{what}.json"
    watch = None
    for draw in draws(f"{what} file", FILES):
        path.write_bytes(written(draw, good))
        try:
            check(path)
        except ConfigError as error:
            str(error).encode()
        except Exception as error:
            raise AssertionError(f"{error!r}: {draw}: {path.read_bytes()[:2000]!r}") from error
        watch = watch or Watch(f"{what} files")
    assert watch is not None
    report = watch.report(FILES * SCALE)
    assert not watch.has_grown, report
