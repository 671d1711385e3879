"""The aggregator in clients' files: put in, shown without the secrets of others, and taken out again."""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.harness import PATIENCE
from support.machines import machine, put

from fastmcp_aggregator.client_configs import installing
from fastmcp_aggregator.client_configs.installing import (
    Change,
    FileChanged,
    apply,
    backup_of,
    entry_for,
    installation,
    launch_command,
    removal,
    restore,
    search_path,
    shown_diff,
    told_apart,
)
from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS
from fastmcp_aggregator.config.disclosure import DOTS
from fastmcp_aggregator.errors import AggregatorError, ConfigError

TEXTS = {
    "cursor": '{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "secret-of-a"}}}}',
    "zed": '// mine\n{\n  "theme": "One",\n  "context_servers": {},\n}\n',
    "vscode": '{\r\n\t"inputs": [],\r\n\t"servers": {\r\n\t\t"a": {"url": "https://a"} // one\r\n\t}\r\n}\r\n',
    "codex": '# mine\nmodel = "o3"\n\n[mcp_servers.a]\ncommand = "x" # y\n\n[other]\nx = 1\n',
    "claude-desktop": "\ufeff{}",
    "gemini-cli": "",
}


@pytest.mark.parametrize(
    ("theirs", "ours", "is_same"),
    [
        ("secret", "${TOKEN}", True),
        ("a-secret", "a-${TOKEN}", True),
        ("${env:TOKEN}", "${TOKEN}", True),
        ("${env:OTHER}", "${OTHER}", True),  # which neither has
        ("secret", "${OTHER}", False),
        ("$5", "$$5", True),
        ("${OTHER", "$${OTHER", True),
        ("another", "${TOKEN}", False),
    ],
)
def test_a_variable_is_the_same_as_its_value(theirs: str, ours: str, is_same: bool) -> None:
    def entries(value: str) -> dict[str, Any]:
        return {"a": {"command": "x", "args": [value]}}

    found = told_apart(CLIENT_CONFIGS["cursor"], entries(theirs), entries(ours), {"TOKEN": "secret"})
    assert found == ((["a"], []) if is_same else ([], ["a"]))


@pytest.mark.parametrize("client_id", TEXTS)
def test_a_file_becomes_again_what_it_was_byte_for_byte(client_id: str, tmp_path: Path) -> None:
    client, text = CLIENT_CONFIGS[client_id], TEXTS[client_id]
    path = tmp_path / "config"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    entry = entry_for(client, ["mcp.json", "--no-strict"], os.environ)
    backup = apply(installation(client, path, "hub", entry), keeps_backup=False)
    assert backup == backup_of(path)
    assert backup is not None
    assert backup.read_bytes() == text.encode()
    written = path.read_text("utf-8-sig")
    if client_id == "codex":
        assert tomllib.loads(written)["mcp_servers"]["hub"] == entry
        assert entry["startup_timeout_sec"] == 60
        assert '[mcp_servers.a]\ncommand = "x" # y\n' in written
        assert tomllib.loads(written)["other"] == {"x": 1}
    assert all(line in written.replace("{}", "{") for line in ("// mine", "// one") if line in text)
    change, is_exact = removal(client, path, "hub")
    assert is_exact
    restore(change, is_exact=is_exact)
    assert path.read_bytes() == text.encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert not backup.exists()


@pytest.mark.parametrize(
    ("client_id", "edit", "rest"),
    [
        ("cursor", lambda text: text.replace('"x"', '"y"'), TEXTS["cursor"].replace('"x"', '"y"')),
        ("codex", lambda text: text + "y = 2\n", TEXTS["codex"] + "y = 2\n"),
    ],
)
def test_from_a_file_that_has_changed_since_only_our_entry_is_taken(
    client_id: str, edit: Callable[[str], str], rest: str, tmp_path: Path
) -> None:
    client = CLIENT_CONFIGS[client_id]
    path = put(tmp_path / "config", TEXTS[client_id])
    apply(installation(client, path, "hub", entry_for(client, ["mcp.json"], os.environ)), keeps_backup=False)
    path.write_text(edit(path.read_text()))
    change, is_exact = removal(client, path, "hub")
    assert not is_exact
    restore(change, is_exact=is_exact)
    loads = tomllib.loads if client_id == "codex" else json.loads
    assert loads(path.read_text()) == loads(rest)
    assert backup_of(path).exists()


def test_a_file_that_was_not_there_is_gone_again(tmp_path: Path) -> None:
    client, path = CLIENT_CONFIGS["vscode"], tmp_path / "new" / "mcp.json"
    entry = entry_for(client, ["mcp.json"], os.environ)
    assert apply(installation(client, path, "hub", entry), keeps_backup=False) is None
    assert json.loads(path.read_text()) == {"servers": {"hub": {**entry, "type": "stdio"}}}
    assert path.stat().st_mode & 0o777 == 0o600
    change, is_exact = removal(client, path, "hub")
    restore(change, is_exact=is_exact)
    assert not path.exists()


def test_installing_again_keeps_the_first_backup(tmp_path: Path) -> None:
    client, path = CLIENT_CONFIGS["cursor"], put(tmp_path / "mcp.json", TEXTS["cursor"])
    for arguments, keeps in ((["a.json"], False), (["b.json"], True)):
        apply(installation(client, path, "hub", entry_for(client, arguments, {})), keeps_backup=keeps)
    assert backup_of(path).read_text() == TEXTS["cursor"]
    change, is_exact = removal(client, path, "hub")
    assert (change.after, is_exact) == (TEXTS["cursor"], True)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_somebody_has_written_since_it_was_read_is_left_alone(is_there: bool, tmp_path: Path) -> None:
    client, path = CLIENT_CONFIGS["cursor"], tmp_path / "mcp.json"
    if is_there:
        put(path, TEXTS["cursor"])
    change = installation(client, path, "hub", entry_for(client, ["a.json"], {}))
    put(path, '{"mcpServers": {"other": {"command": "o"}}}')
    with pytest.raises(FileChanged, match="was changed meanwhile"):
        apply(change, keeps_backup=False)
    assert list(json.loads(path.read_text())["mcpServers"]) == ["other"]
    assert list(tmp_path.iterdir()) == [path]


def test_installations_at_the_same_time_lose_nothing_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "mcp.json", TEXTS["cursor"])
    client, real = CLIENT_CONFIGS["cursor"], installing._text

    def slowly(read: Path) -> str | None:
        text = real(read)
        time.sleep(0.002)
        return text

    monkeypatch.setattr(installing, "_text", slowly)

    def install(number: int) -> None:
        while True:
            try:
                apply(installation(client, path, f"s{number}", entry_for(client, [], {})), keeps_backup=True)
            except FileChanged:
                continue
            return

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(install, number) for number in range(8)]:
            done.result(PATIENCE)
    assert set(json.loads(path.read_text())["mcpServers"]) == {"a", *(f"s{number}" for number in range(8))}
    assert {each.name for each in tmp_path.iterdir()} == {path.name, backup_of(path).name}


@pytest.mark.parametrize("text", ["", TEXTS["cursor"]])
def test_a_removal_from_a_file_that_somebody_has_written_since_is_not_made(text: str, tmp_path: Path) -> None:
    client, path = CLIENT_CONFIGS["cursor"], tmp_path / "mcp.json"
    if text:
        put(path, text)
    apply(installation(client, path, "hub", entry_for(client, ["a.json"], {})), keeps_backup=False)
    change, is_exact = removal(client, path, "hub")
    written = path.read_text().replace('"hub"', '"other"')
    put(path, written)
    backups = backup_of(path).exists()
    with pytest.raises(FileChanged):
        restore(change, is_exact=is_exact)
    assert path.read_text() == written
    assert backup_of(path).exists() is backups


def test_what_cannot_be_served_and_the_entry_itself_are_not_moved(tmp_path: Path) -> None:
    client, entry = CLIENT_CONFIGS["cursor"], entry_for(CLIENT_CONFIGS["cursor"], [], {})
    path = put(tmp_path / "mcp.json", json.dumps({"mcpServers": {"odd": {"type": "sdk"}, "hub": entry}}))
    change = installation(client, path, "hub", entry, {"odd": {"type": "other"}, "another": entry})
    assert json.loads(change.after or "")["mcpServers"] == {"odd": {"type": "sdk"}, "hub": entry}


def test_a_server_of_another_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    client, path = CLIENT_CONFIGS["cursor"], put(tmp_path / "mcp.json", TEXTS["cursor"])
    with pytest.raises(AggregatorError, match="has another server 'a'; give --name"):
        installation(client, path, "a", entry_for(client, [], {}))
    change, _ = removal(client, path, "a")
    assert change.before == change.after


@pytest.mark.parametrize("text", ["{", '{"mcpServers": 5}'])
def test_a_file_that_is_wrong_is_left_alone(text: str, tmp_path: Path) -> None:
    path = put(tmp_path / "mcp.json", text)
    with pytest.raises(ConfigError, match=r"JSON|not an object"):
        installation(CLIENT_CONFIGS["cursor"], path, "hub", {})
    path.write_bytes(b"\xff")
    with pytest.raises(AggregatorError, match="it is not UTF-8"):
        installation(CLIENT_CONFIGS["cursor"], path, "hub", {})


def test_a_table_of_toml_that_is_none_is_said(tmp_path: Path) -> None:
    path = put(tmp_path / "config.toml", "mcp_servers = 5\n")
    with pytest.raises(ConfigError, match="`mcp_servers` is not a table"):
        installation(CLIENT_CONFIGS["codex"], path, "hub", {})


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    blocked = put(tmp_path / "file", "")
    change = installing.Change(blocked / "mcp.json", None, "{}")
    with pytest.raises(AggregatorError, match="cannot write"):
        apply(change, keeps_backup=False)
    with pytest.raises(AggregatorError, match="cannot write"):
        restore(change, is_exact=True)


def test_the_difference_has_no_line_of_a_longer_text_and_no_token_of_a_comment(tmp_path: Path) -> None:
    text = 'x = """\nsecret-line\n"""\n# ghp_abcdefghijklmnopqrst\n'
    change = installation(CLIENT_CONFIGS["codex"], put(tmp_path / "config", text), "hub", {"command": "x"})
    shown = "\n".join(shown_diff(change, CLIENT_CONFIGS["codex"], {}))
    assert "[mcp_servers.hub]" in shown
    assert "secret-line" not in shown
    assert "ghp_" not in shown


@pytest.mark.parametrize("client_id", ["cursor", "codex"])
def test_the_difference_has_dots_for_the_values_of_others(client_id: str, tmp_path: Path) -> None:
    client = CLIENT_CONFIGS[client_id]
    text = TEXTS[client_id].replace('command = "x"', 'command = "x"\nenv = {TOKEN = "secret-of-a"}')
    path = put(tmp_path / "config", text)
    entry = entry_for(client, ["C:\\mcp.json"], {"PATH": str(tmp_path)})
    shown = "\n".join(shown_diff(installation(client, path, "hub", entry), client, entry))
    assert "secret" not in shown
    assert "•••" in shown
    assert "C:\\\\mcp.json" in shown
    assert str(tmp_path) in shown
    assert "command" in shown
    assert ("startup_timeout_sec = 60" in shown) == (client_id == "codex")


def test_the_difference_has_what_is_no_secret_also_of_a_file_of_one_line(tmp_path: Path) -> None:
    client = CLIENT_CONFIGS["cursor"]
    other = {
        "command": "npx",
        "args": ["-y", "some-server@1.2.3", "--key=secret-1"],
        "env": {"TOKEN": "secret-2"},
        "timeout": 60,
        "enabled": True,
    }
    text = json.dumps({"model": "gpt-5", "key": "secret-3", "mcpServers": {"a": other}}, separators=(",", ":"))
    change = Change(put(tmp_path / "mcp.json", text), text, "")
    lines = [line[1:] for line in shown_diff(change, client, {}) if line.startswith("-") and "---" not in line]
    expected = json.loads(text.replace("--key=secret-1", DOTS))
    expected["key"] = expected["mcpServers"]["a"]["env"]["TOKEN"] = DOTS
    assert json.loads("".join(lines)) == expected


@pytest.mark.parametrize("after", ["# more\n", "\n# more\n# and more\n", "\n# of the next\n[another]\nx = 1\n"])
def test_comments_behind_the_entry_stay_when_it_is_taken_out(after: str, tmp_path: Path) -> None:
    client, path = CLIENT_CONFIGS["codex"], put(tmp_path / "config.toml", TEXTS["codex"])
    apply(installation(client, path, "hub", entry_for(client, [], {"PATH": str(tmp_path)})), keeps_backup=False)
    installed = path.read_text()
    path.write_text(installed.rstrip("\n") + "\n" + after)
    change, is_exact = removal(client, path, "hub")
    assert not is_exact
    assert after.strip() in (change.after or "")
    assert "hub" not in (change.after or "")
    assert tomllib.loads(change.after or "").get("other")


def test_the_command_needs_no_search_path() -> None:
    command = launch_command()
    assert Path(command[0]).is_absolute()
    assert Path(command[0]).is_file()


def test_an_environment_that_uv_may_throw_away_is_not_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uvx = put(tmp_path / "uvx", "#!/bin/sh\n")
    uvx.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", "/home/me/.cache/uv/archive-v0/abc")
    assert launch_command()[:2] == [str(uvx), "--from"]
    assert launch_command()[-1] == "fastmcp-aggregator"


def test_without_a_script_the_module_is_started_but_not_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert launch_command() == [str(tmp_path / "python"), "-P", "-m", "fastmcp_aggregator"]


def test_the_search_path_has_the_folders_that_are_there_once(tmp_path: Path) -> None:
    here = str(machine(tmp_path).home)
    path = os.pathsep.join([here, "relative", str(tmp_path / "none"), here, str(tmp_path)])
    assert search_path({"PATH": path}) == os.pathsep.join([here, str(tmp_path)])
    assert search_path({}) == ""
