"""The entry of a new server in a config: what it is, and that the rest of the file stays as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastmcp_aggregator import load_config
from fastmcp_aggregator.errors import AggregatorError, ConfigError
from fastmcp_aggregator.files.atomic import write_whole
from fastmcp_aggregator.scaffold.entries import Addition, addition, entry_for
from fastmcp_aggregator.scaffold.rules import Plan


def add(planned: Addition) -> None:
    write_whole(planned.path, planned.text, mode=planned.mode)


def test_a_python_server_is_started_from_its_own_environment(tmp_path: Path) -> None:
    entry = entry_for(Plan(name="-a-"), tmp_path)
    assert entry == {"command": f"{tmp_path}/.venv/bin/a", "cwd": str(tmp_path)}


def test_a_typescript_server_is_started_by_node(tmp_path: Path) -> None:
    entry = entry_for(Plan(name="a", language="typescript"), tmp_path)
    assert entry == {"command": "node", "args": [f"{tmp_path}/dist/src/main.js"], "cwd": str(tmp_path)}


def test_the_path_of_an_entry_is_what_the_config_reads_from_it(tmp_path: Path) -> None:
    folder = tmp_path / "$HOME ${x}"
    path = tmp_path / "mcp.json"
    add(addition(path, "a", entry_for(Plan(name="a"), folder)))
    assert load_config(path, environ={}).servers["a"].cwd == str(folder)  # type: ignore[union-attr]


def test_a_config_is_made_if_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    add(addition(path, "a", {"command": "x"}))
    assert path.read_text() == '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    }\n  }\n}\n'


def test_the_rest_of_a_config_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    before = '{\n\t"mcpServers": {"b": {"command": "${B}",\n  "args": [ 1.50 ]}},\n\t"else": {"x":1}\n}'
    path.write_text(before)
    path.chmod(0o600)
    add(addition(path, "a", {"command": "x"}))
    after = path.read_text()
    assert json.loads(after)["mcpServers"]["a"] == {"command": "x"}
    assert '"b": {"command": "${B}",\n  "args": [ 1.50 ]}' in after
    assert '"else": {"x":1}' in after
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_server_that_is_there_already_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "mine"}}}')
    with pytest.raises(match="has a server 'a' already"):
        addition(path, "a", {"command": "x"})


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"mcpServers": 5}', '{"servers": {}}'])
def test_what_is_no_config_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        addition(path, "a", {"command": "x"})
    assert path.read_text() == text


def test_a_config_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(match="there is no folder"):
        addition(tmp_path / "none" / "mcp.json", "a", {})


def test_a_config_that_is_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AggregatorError, match=r"is a link to .*, which is not there"):
        addition(tmp_path / "mcp.json", "a", {"command": "x"})


def test_a_config_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    planned = addition(tmp_path / "mcp.json", "a", {})
    (tmp_path / "mcp.json").mkdir()
    with pytest.raises(match="cannot write"):
        add(planned)
