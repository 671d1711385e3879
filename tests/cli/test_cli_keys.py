"""`keys`: what each action prints, what it leaves in the file, and what it needs to be told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.access.keys import ApiKey
from fastmcp_aggregator.access.keys_file import FollowedKeys, read_keys
from fastmcp_aggregator.cli.main import main, parse


def keys(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "fastmcp_aggregator", "keys", *arguments]
    return subprocess.run(line, capture_output=True, text=True, env=env, timeout=PATIENCE, check=False)


@pytest.mark.process
def test_a_key_is_made_and_listed_and_revoked(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    made = keys("create", "alice", "--file", str(file), "--groups", "web, docs", "--days", "30")
    key = made.stdout.strip()
    assert made.returncode == 0, made.stderr
    assert re.fullmatch(r"fma_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", key)
    assert key not in made.stderr
    assert key.split("_", 2)[2] not in file.read_text()
    (kept,) = read_keys(file)
    assert FollowedKeys(file).find(key) == kept
    assert (kept.name, kept.groups) == ("alice", {"web", "docs"})
    assert kept.expires is not None
    assert (kept.expires - kept.created).days == 30

    listed = keys("list", "--file", str(file))
    assert f"{kept.id}  alice" in listed.stdout
    assert "for docs, web, and expires on" in listed.stdout
    assert kept.sha256 not in listed.stdout

    revoked = keys("revoke", "alice", "--file", str(file))
    assert (revoked.returncode, read_keys(file)) == (0, ())
    again = keys("revoke", "alice", "--file", str(file))
    assert again.returncode == 1
    assert "there is no key of 'alice'" in again.stderr


def test_another_key_of_the_same_name_is_said_with_the_ids_of_both(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    create = ["keys", "create", "alice", "--file", str(tmp_path / "keys.json")]
    assert main(create) == 0
    assert "other keys" not in capfd.readouterr().err
    (first,) = read_keys(tmp_path / "keys.json")
    assert main(create) == 0
    said = f"'alice' has other keys, too ({first.id}); to end one: fastmcp-aggregator keys revoke ID"
    assert said in capfd.readouterr().err


def test_groups_that_cannot_be_or_are_not_there_are_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    create = ["keys", "create", "alice", "--file", str(tmp_path / "keys.json")]
    assert main([*create, "--groups", "web tools"]) == 2
    assert "'web tools' cannot be the id of a group; separate several by commas" in capfd.readouterr().err
    (tmp_path / "group.json").write_text('{"web": {"servers": []}}')
    settings = tmp_path / "settings.toml"
    settings.write_text(f'groups = "{tmp_path}/group.json"')
    assert main([*create, "--groups", "web,wbe,default", "--settings", str(settings)]) == 0
    assert f"warning: {tmp_path}/group.json has no group wbe; the key" in capfd.readouterr().err
    assert main([*create, "--groups", "web"]) == 0
    assert "warning" not in capfd.readouterr().err


def test_a_key_is_not_written_through_a_link_to_a_file_that_is_not_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    link, target = tmp_path / "keys.json", tmp_path / "elsewhere"
    link.symlink_to(target)
    assert main(["keys", "create", "alice", "--file", str(link)]) != 0
    assert f"{link} is a link to {target}, which is not there" in capfd.readouterr().err
    assert [*tmp_path.iterdir()] == [link]


def test_each_action_has_its_result_as_json_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "keys.json")

    def told(*arguments: str) -> dict[str, Any]:
        assert main(["keys", *arguments, "--file", file, "--json"]) == 0
        document: dict[str, Any] = json.loads(capfd.readouterr().out)
        return document

    made = told("create", "alice", "--groups", "web", "--days", "3")
    (kept,) = read_keys(Path(file))
    assert FollowedKeys(Path(file)).find(made.pop("key")) == kept
    assert (made["id"], made["name"], made["groups"], made["isExpired"]) == (kept.id, "alice", ["web"], False)
    assert told("list") == {"keys": [made]}
    assert told("revoke", "alice") == {"revoked": [made]}
    assert told("list") == {"keys": []}


def test_one_of_several_keys_of_an_owner_is_revoked_by_its_id(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.json")
    for name in ("alice", "alice", "bob"):
        assert main(["keys", "create", name, "--file", file]) == 0
    first, second, other = read_keys(Path(file))
    assert main(["keys", "revoke", first.id, "--file", file]) == 0
    assert read_keys(Path(file)) == (second, other)
    assert main(["keys", "revoke", "alice", "--file", file]) == 0
    assert read_keys(Path(file)) == (other,)


def test_several_keys_of_an_owner_are_revoked_only_if_all_are_meant(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "keys.json")
    for name in ("alice", "alice", "bob"):
        assert main(["keys", "create", name, "--file", file]) == 0
    first, second, other = read_keys(Path(file))
    assert main(["keys", "revoke", "alice", "--file", file]) == 2
    assert read_keys(Path(file)) == (first, second, other)
    said = capfd.readouterr().err
    assert "'alice' has 2 keys (" in said
    assert f"{second.id} of 20" in said
    assert "): give the id of one of them, or --all" in said
    assert main(["keys", "revoke", "alice", "--all", "--file", file]) == 0
    assert read_keys(Path(file)) == (other,)


def test_a_key_gets_other_groups_roles_and_days_and_keeps_what_is_not_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.json"

    def one(*arguments: str) -> ApiKey:
        assert main(["keys", *arguments, "--file", str(file)]) == 0
        return read_keys(file)[0]

    made = one("create", "alice", "--groups", "web", "--days", "3")
    key = capfd.readouterr().out.strip()
    moved = one("set", "alice", "--groups", "docs")
    assert moved == replace(made, groups=frozenset({"docs"}))
    said = f"the key {made.id} of 'alice' is for docs, and expires on {made.expires:%Y-%m-%d}; running aggregators take"
    assert said in capfd.readouterr().err
    assert FollowedKeys(file).find(key) == moved
    longer = one("set", made.id, "--days", "300")
    assert longer == replace(moved, expires=longer.expires)
    assert longer.expires is not None
    assert (longer.expires - made.created).days == 300
    assert one("set", "alice", "--days", "never", "--groups", "*") == replace(made, groups=None, expires=None)
    assert one("set", "alice", "--roles", "call,observe").roles == {"call", "observe"}
    assert main(["keys", "set", "bob", "--days", "3", "--file", str(file)]) == 1
    assert "there is no key of 'bob'" in capfd.readouterr().err


def test_several_keys_of_an_owner_are_changed_only_if_all_are_meant(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.json")
    for name in ("alice", "alice", "bob"):
        assert main(["keys", "create", name, "--file", file]) == 0
    before = read_keys(Path(file))
    change = ["keys", "set", "alice", "--groups", "web", "--file", file]
    assert main(change) == 2
    assert read_keys(Path(file)) == before
    assert main([*change, "--all"]) == 0
    assert [key.groups for key in read_keys(Path(file))] == [{"web"}, {"web"}, None]


def test_the_file_may_be_named_by_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_KEYS_FILE", str(tmp_path / "from-environment.json"))
    assert main(["keys", "create", "alice"]) == 0
    assert [key.name for key in read_keys(tmp_path / "from-environment.json")] == ["alice"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["create", "a b", "--file", "{file}"], 2, "cannot be the name of a key"),
        (["create", "anonymous", "--file", "{file}"], 2, "cannot be the name of a key"),
        (["create", "alice", "--file", "{file}", "--groups", " , "], 2, "--groups needs at least one group id"),
        (["create", "alice"], 2, "no keys file is given: use --file FILE"),
        (["create", "alice", "--file", "{folder}/none/keys.json"], 1, "cannot write"),
        (["list", "--file", "{file}"], 2, "there is no file"),
        (["revoke", "alice", "--file", "{file}"], 2, "there is no file"),
        (["set", "alice", "--days", "3", "--file", "{file}"], 2, "there is no file"),
    ],
)
def test_what_cannot_be_done_is_said_and_makes_no_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    file = tmp_path / "keys.json"
    filled = [argument.format(file=file, folder=tmp_path) for argument in arguments]
    assert main(["keys", *filled]) == code
    assert words in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_wrong_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": 5}))
    file.chmod(0o600)
    assert main(["keys", "create", "alice", "--file", str(file)]) == 2
    assert json.loads(file.read_text()) == {"keys": 5}


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys"],
        ["keys", "make", "alice"],
        ["keys", "create"],
        ["keys", "revoke"],
        ["keys", "list", "alice"],
        ["keys", "list", "--groups", "a"],
        ["keys", "list", "--all"],
        ["keys", "revoke", "alice", "--days", "3"],
        ["keys", "create", "alice", "--days", "0"],
        ["keys", "create", "alice", "--days", "999999999"],
        ["keys", "set", "alice"],
        ["keys", "set", "--days", "3"],
        ["keys", "set", "alice", "--days", "soon"],
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
