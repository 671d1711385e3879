"""What is found on a machine, and what an entry of each client becomes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.machines import machine, put

from fastmcp_aggregator.client_configs.found import found_files, given_file
from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS
from fastmcp_aggregator.client_configs.merging import definitions, merged, usable_key
from fastmcp_aggregator.client_configs.translation import translated
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.errors import ConfigError

VARIABLES = {"A": "1", "GH": "2", "TOKEN": "3", "HOME": "/home/me", "DOCS": "4", "X": "5"}


def entry(client: str, raw: dict[str, Any], project: Path | None = None) -> dict[str, Any]:
    found = translated(raw, CLIENT_CONFIGS[client], project).entry
    assert found is not None
    # Whatever comes out is what the aggregator reads.
    environ = {**VARIABLES, "API_KEY": "6", "WORKSPACE_FOLDER": "7"}
    load_config({"mcpServers": {"it": found}}, environ=environ)
    return found


@pytest.mark.parametrize(
    ("system", "environ", "places"),
    [
        (
            "linux",
            {},
            {
                "claude-desktop": ".config/Claude/claude_desktop_config.json",
                "claude-code": ".claude.json",
                "cursor": ".cursor/mcp.json",
                "vscode": ".config/Code/User/mcp.json",
                "windsurf": ".codeium/windsurf/mcp_config.json",
                "zed": ".config/zed/settings.json",
                "cline": ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "gemini-cli": ".gemini/settings.json",
                "codex": ".codex/config.toml",
            },
        ),
        (
            "darwin",
            {},
            {
                "claude-desktop": "Library/Application Support/Claude/claude_desktop_config.json",
                "vscode": "Library/Application Support/Code/User/mcp.json",
                "zed": ".config/zed/settings.json",
            },
        ),
        (
            "win32",
            {},
            {
                "claude-desktop": "AppData/Roaming/Claude/claude_desktop_config.json",
                "vscode": "AppData/Roaming/Code/User/mcp.json",
                "zed": "AppData/Roaming/Zed/settings.json",
            },
        ),
        (
            "linux",
            {"XDG_CONFIG_HOME": "{home}/xdg", "CODEX_HOME": "{home}/cx", "CLAUDE_CONFIG_DIR": "{home}/cc"},
            {
                "claude-desktop": "xdg/Claude/claude_desktop_config.json",
                "codex": "cx/config.toml",
                "claude-code": "cc/.claude.json",
                "zed": "xdg/zed/settings.json",
            },
        ),
    ],
)
def test_each_client_has_its_file_where_the_system_keeps_it(
    system: str, environ: dict[str, str], places: dict[str, str], tmp_path: Path
) -> None:
    filled = {name: value.format(home=tmp_path / "home") for name, value in environ.items()}
    here = machine(tmp_path, system, **filled)
    assert {name: CLIENT_CONFIGS[name].user_files(here)[0] for name in places} == {
        name: here.home / place for name, place in places.items()
    }


def test_fastmcp_finds_the_same_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the files are laid out as on Linux")
    from fastmcp.cli.discovery import discover_servers

    here = machine(tmp_path)
    text = json.dumps({"mcpServers": {"a": {"command": "x"}}, "projects": {}})
    for name in ("claude-desktop", "claude-code", "cursor", "gemini-cli"):
        if name != "cursor":  # of which FastMCP looks at projects alone
            put(CLIENT_CONFIGS[name].user_files(here)[0], text)
    put(here.project / ".cursor" / "mcp.json", text)
    put(here.project / ".gemini" / "settings.json", text)
    monkeypatch.setenv("HOME", str(here.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    ours = {(file.path, server.key) for file in found_files(here) for server in file.servers}
    theirs = {(server.config_path, server.name) for server in discover_servers(here.project)}
    assert ours == theirs
    assert len(ours) == 5


def test_the_servers_of_a_project_are_found_from_a_folder_in_it(tmp_path: Path) -> None:
    here = machine(tmp_path)
    above = here.project.parent
    put(above / ".vscode" / "mcp.json", '{"servers": {"a": {"command": "${workspaceFolder}/x"}}}')
    put(here.home / ".mcp.json", '{"mcpServers": {"above": {"command": "x"}}}')
    (file,) = found_files(here)
    assert file.servers[0].translated.entry == {"command": f"{above}/x"}


def test_claude_code_has_servers_of_its_own_for_each_project(tmp_path: Path) -> None:
    here = machine(tmp_path)
    document = {
        "mcpServers": {"user": {"command": "x"}},
        "projects": {
            str(here.project): {"mcpServers": {"local": {"command": "y"}}},
            "/other": {"mcpServers": {"z": 1}},
        },
    }
    put(CLIENT_CONFIGS["claude-code"].user_files(here)[0], json.dumps(document))
    (file,) = found_files(here, ["claude-code"])
    assert [server.key for server in file.servers] == ["user", "local"]


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"mcpServers": {', "is missing"), ("[]", "must be an object"), (chr(0), "a value is missing")],
)
def test_a_file_that_cannot_be_read_is_said_and_the_others_are_found(text: str, words: str, tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(CLIENT_CONFIGS["cursor"].user_files(here)[0], text)
    put(CLIENT_CONFIGS["codex"].user_files(here)[0], '[mcp_servers.a]\ncommand = "x"\n')
    bad, good = found_files(here)
    assert words in (bad.error or "")
    assert (good.error, [server.key for server in good.servers]) == (None, ["a"])


def test_toml_that_is_wrong_is_said_with_its_line(tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(CLIENT_CONFIGS["codex"].user_files(here)[0], 'a = 1\nb = "secret\n')
    (bad,) = found_files(here)
    assert "is not valid TOML at line 2" in (bad.error or "")
    assert "secret" not in (bad.error or "")


@pytest.mark.parametrize(
    ("name", "text", "client"),
    [
        ("any.json", '{"servers": {"a": {"command": "x"}}}', "vscode"),
        ("any.json", '{"context_servers": {"a": {"command": "x"}}}', "zed"),
        ("any.toml", '[mcp_servers.a]\ncommand = "x"', "codex"),
        ("claude_desktop_config.json", '{"mcpServers": {"a": {"command": "x"}}}', "claude-desktop"),
        ("p/.cursor/mcp.json", '{"mcpServers": {"a": {"command": "x"}}}', "cursor"),
        ("home/.gemini/settings.json", '{"mcpServers": {"a": {"command": "x"}}}', "gemini-cli"),
        ("any.json", '{"mcpServers": {"a": {"command": "x"}}}', "file"),
    ],
)
def test_whose_a_given_file_is_is_told_by_its_place_or_its_keys(
    name: str, text: str, client: str, tmp_path: Path
) -> None:
    file = given_file(put(tmp_path / name, text), machine(tmp_path))
    assert (file.client.id, file.error) == (client, None)
    assert file.servers[0].translated.entry == {"command": "x"}


def test_a_given_file_without_servers_is_said(tmp_path: Path) -> None:
    assert given_file(put(tmp_path / "x.json", "{}"), machine(tmp_path)).error == "has no `mcpServers`"
    with pytest.raises(ConfigError, match="there is no file"):
        given_file(tmp_path / "none.json", machine(tmp_path))


@pytest.mark.parametrize(
    ("client", "raw", "becomes"),
    [
        # Variables
        (
            "claude-desktop",
            {"command": "$A", "args": ["${A}", "$$", "5$"]},
            {"args": ["$${A}", "$$$$", "5$"], "command": "$$A"},
        ),
        ("claude-code", {"command": "${A:-x}", "args": ["$A"]}, {"command": "${A:-x}", "args": ["$$A"]}),
        (
            "cursor",
            {"command": "${env:A}", "args": ["${userHome}${/}x${pathSeparator}", "${A}"]},
            {"command": "${A}", "args": ["${HOME}/x/", "$${A}"]},
        ),
        (
            "vscode",
            {"command": "x", "env": {"T": "${input:api-key}", "W": "${workspaceFolder}"}},
            {"command": "x", "env": {"T": "${API_KEY}", "W": "${WORKSPACE_FOLDER}"}},
        ),
        (
            "gemini-cli",
            {"command": "$A", "args": ["${X:-1}", "${env:A}"]},
            {"command": "$A", "args": ["${X:-1}", "$${env:A}"]},
        ),
        ("zed", {"command": "x", "args": ["${"]}, {"command": "x", "args": ["$${"]}),
        # Remote servers
        ("windsurf", {"serverUrl": "https://a/mcp"}, {"url": "https://a/mcp"}),
        ("gemini-cli", {"httpUrl": "https://a/sse"}, {"url": "https://a/sse", "type": "http"}),
        ("gemini-cli", {"url": "https://a/mcp"}, {"url": "https://a/mcp", "type": "sse"}),
        ("gemini-cli", {"url": "https://a/mcp", "type": "http"}, {"url": "https://a/mcp", "type": "http"}),
        (
            "cline",
            {"url": "https://a/mcp", "type": "streamableHttp", "timeout": 60},
            {"url": "https://a/mcp", "type": "http", "timeout": 60000},
        ),
        ("cline", {"url": "https://a/mcp"}, {"url": "https://a/mcp", "type": "sse"}),
        (
            "cursor",
            {"url": "https://a/mcp", "headers": {"X": "${env:GH}"}},
            {"url": "https://a/mcp", "headers": {"X": "${GH}"}},
        ),
        # Codex
        (
            "codex",
            {
                "url": "https://a/mcp",
                "bearer_token_env_var": "DOCS",
                "http_headers": {"A": "5$X"},
                "env_http_headers": {"B": "GH"},
                "tool_timeout_sec": 1.5,
            },
            {
                "url": "https://a/mcp",
                "headers": {"A": "5$$X", "B": "${GH}", "Authorization": "Bearer ${DOCS}"},
                "timeout": 1500,
            },
        ),
        (
            "codex",
            {"command": "x", "env": {"A": "1"}, "env_vars": ["GH", {"name": "X"}], "enabled": False},
            {"command": "x", "env": {"A": "1", "GH": "${GH:-}", "X": "${X:-}"}, "disabled": True},
        ),
        # The rest
        (
            "zed",
            {"command": {"path": "x", "args": ["y"], "env": {"A": "1"}}},
            {"command": "x", "args": ["y"], "env": {"A": "1"}},
        ),
        ("cline", {"command": "x", "disabled": True, "autoApprove": []}, {"command": "x", "disabled": True}),
        ("cline", {"command": "x", "disabled": "true"}, {"command": "x", "disabled": True}),
        ("cline", {"command": "x", "disabled": None}, {"command": "x"}),
        (
            "vscode",
            {"type": "stdio", "command": "x", "env": {"PORT": 80, "D": True, "N": None}},
            {"command": "x", "env": {"PORT": "80", "D": "true"}},
        ),
        (
            "gemini-cli",
            {"command": "x", "timeout": 5000, "description": "d", "trust": True},
            {"command": "x", "timeout": 5000, "description": "d"},
        ),
    ],
)
def test_an_entry_of_a_client_becomes_one_of_the_standard_config(
    client: str, raw: dict[str, Any], becomes: dict[str, Any]
) -> None:
    assert entry(client, raw) == becomes


def test_a_folder_of_a_project_is_made_absolute(tmp_path: Path) -> None:
    assert entry("gemini-cli", {"command": "x", "cwd": "./s"}, tmp_path)["cwd"] == str(tmp_path / "s")
    assert entry("gemini-cli", {"command": "x", "cwd": "$HOME/s"}, tmp_path)["cwd"] == "$HOME/s"


@pytest.mark.parametrize(
    ("client", "raw", "words"),
    [
        (
            "vscode",
            {"command": "x", "envFile": ".env"},
            ["`envFile` is left out: its variables are not read here: give the file with --env-file"],
        ),
        (
            "gemini-cli",
            {"command": "x", "includeTools": ["a"]},
            ["`includeTools` is left out: which tools are shown is said in a groups file"],
        ),
        ("codex", {"command": "x", "a": 1, "b": 2}, ["`a`, `b` are not used here; left out"]),
        (
            "cursor",
            {"command": "x", "arg": [], "icon": "i", "a": 1},
            ["has `arg`, which is ignored; did you mean `args`?", "`a` is not used here; left out"],
        ),
        (
            "cline",
            {"command": "x", "disabled": "true"},
            ["`disabled` is neither true nor false, so the server is switched off"],
        ),
        ("cursor", {"comand": "x"}, ["is left out: has `comand`; did you mean `command`?"]),
        ("vscode", {"command": "${input:k}"}, ["${input:k} has become ${K}: set K"]),
    ],
)
def test_what_does_not_come_along_is_said(client: str, raw: dict[str, Any], words: list[str]) -> None:
    assert list(translated(raw, CLIENT_CONFIGS[client], None).remarks) == words


@pytest.mark.parametrize("raw", [{"source": "extension", "settings": {}}, {}, "x"])
def test_what_is_no_server_is_left_out(raw: Any) -> None:
    assert translated(raw, CLIENT_CONFIGS["zed"], None).entry is None


# Several files in one config


def files(tmp_path: Path, **servers: dict[str, Any]) -> dict[str, Any]:
    here = machine(tmp_path)
    for client, entries in servers.items():
        path = CLIENT_CONFIGS[client.replace("_", "-")].user_files(here)[0]
        put(path, json.dumps({"mcpServers": entries}))
    return definitions(found_files(here))


def test_the_same_server_in_two_clients_is_one(tmp_path: Path) -> None:
    same = {"a": {"command": "x", "args": []}}
    found = files(tmp_path, claude_desktop=same, cursor=same)
    assert [definition.client_id for definition in found["a"]] == ["claude-desktop"]
    assert len(found["a"][0].files) == 2


def test_different_servers_of_one_name_get_names_of_their_own(tmp_path: Path) -> None:
    found = files(
        tmp_path,
        claude_desktop={"a": {"command": "x"}, "a-cursor": {"command": "n"}},
        cursor={"a": {"command": "y"}},
        windsurf={"a": {"command": "z"}},
    )
    together = merged(found, lambda *_: None)
    assert together.servers == {
        "a": {"command": "x"},
        "a-cursor": {"command": "n"},
        "a-cursor-2": {"command": "y"},
        "a-windsurf": {"command": "z"},
    }
    assert together.renamed == {"a": ["a-cursor-2", "a-windsurf"]}
    assert merged(found, lambda *_: 1).servers["a"] == {"command": "y"}


def test_the_aggregator_does_not_import_itself(tmp_path: Path) -> None:
    entries = {
        "script": {"command": "/x/bin/fastmcp-aggregator", "args": ["a.json"]},
        "module": {"command": "python", "args": ["-m", "fastmcp_aggregator", "a.json"]},
        "other": {"command": "x"},
    }
    assert list(files(tmp_path, cursor=entries)) == ["other"]


def test_a_key_that_cannot_be_a_server_key_is_changed() -> None:
    assert (usable_key("a:b"), usable_key("")) == ("a-b", "server")
