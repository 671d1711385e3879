"""Whether a server is shared, and why: the rule, from facts to a decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastmcp_aggregator.config import ServerConfig, StdioServer, UnresolvedServer, load_config
from fastmcp_aggregator.isolation.decision import Decision, Shown, decide
from fastmcp_aggregator.isolation.evidence import Evidence
from fastmcp_aggregator.isolation.folder import depends_on_folder, in_folder
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.options import ChildOptions


def server(entry: dict[str, Any]) -> ServerConfig:
    return load_config({"mcpServers": {"a": entry}}).servers["a"]


def options(entry: dict[str, Any], general: str = "auto", **own: Any) -> ChildOptions:
    return ChildOptions.from_settings(AggregatorSettings(isolation=general, servers={"a": own}), server(entry))  # type: ignore[arg-type]


def decided(entry: dict[str, Any], *shown: str, **settings: Any) -> Decision:
    return decide(server(entry), options(entry, **settings), shown)


FIXED = {"WORKSPACE_FOLDER": "/fixed"}
PLAIN = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]}


@pytest.mark.parametrize(
    "entry",
    [
        PLAIN,
        {"command": "/usr/bin/python3", "args": ["/srv/server.py", "--root", "/srv/data"]},
        {"command": "uvx", "args": ["mcp-server-fetch==2025.4.7", "--user-agent", "me/1.0"]},
        {"command": "docker", "args": ["run", "-i", "ghcr.io/github/github-mcp-server"]},
        {"command": "npx", "args": ["-y", "pkg@1.2", "postgres://db/x.json", "~/notes.md"]},
        {"command": "C:\\Tools\\node.exe", "args": ["C:\\srv\\index.js"]},
        {"command": "python", "args": ["server.py", "."], "cwd": "/srv"},
        {"command": "node", "args": ["/memory/node_modules/plain/shell/index.js"]},
        {"url": "https://example.com/mcp"},
    ],
)
def test_a_server_is_shared_if_nothing_shows_that_it_belongs_to_one_client_or_folder(entry: dict[str, Any]) -> None:
    assert decided(entry) == Decision("shared", "nothing shows that it belongs to one client or one folder")


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"command": "npx", "args": ["-y", "pkg", "."]}, "argument 3 is a path"),
        ({"command": "npx", "args": ["-y", "pkg", "--root=.."]}, "argument 3 is a path"),
        ({"command": "npx", "args": ["pkg", "../data"]}, "argument 2 is a path"),
        ({"command": "npx", "args": ["pkg", ".\\data"]}, "argument 2 is a path"),
        ({"command": "python", "args": ["server.py"]}, "argument 1 is a path"),
        ({"command": "node", "args": ["build/index.js"]}, "argument 1 is a path"),
        ({"command": "./server"}, "`command` is a path"),
        ({"command": "bin/server"}, "`command` is a path"),
        ({"command": "npx", "args": ["pkg"], "env": {"DATA": "./data"}}, "one of its variables is a path"),
        ({"command": "npx", "args": ["pkg"], "cwd": "sub"}, "`cwd` is relative"),
        ({"command": "npx", "args": ["-y", "@eslint/mcp@latest"]}, "programs named `eslint` work in the folder"),
        ({"command": "claude", "args": ["mcp", "serve"]}, "programs named `claude` work in the folder"),
        ({"command": "uvx", "args": ["mcp-server-git"]}, "programs named `git` work in the folder"),
    ],
)
def test_a_server_whose_entry_depends_on_the_folder_has_an_instance_for_each(entry: dict[str, Any], why: str) -> None:
    decision = decided(entry)
    assert decision.isolation == "directory"
    assert why in decision.reason


@pytest.mark.parametrize(
    ("entry", "settings", "why"),
    [
        ({"command": "npx", "args": ["@modelcontextprotocol/server-memory"]}, {}, "programs named `memory` keep state"),
        ({"command": "npx", "args": ["@playwright/mcp@latest"]}, {}, "programs named `playwright` keep state"),
        (
            {"command": "node", "args": ["/x/node_modules/@playwright/mcp/cli.js"]},
            {},
            "programs named `playwright` keep state",
        ),
        (
            {"command": "/x/node_modules/.bin/mcp-server-memory"},
            {},
            "programs named `memory` keep state",
        ),
        (PLAIN, {"stateful": True}, "its setting `stateful` says that it keeps state"),
        ({"url": "https://example.com/mcp"}, {"stateful": True}, "its setting `stateful` says that it keeps state"),
        ({"command": "my-shell", "args": ["."]}, {}, "programs named `shell` keep state"),
    ],
)
def test_a_server_that_keeps_state_has_an_instance_for_each_client(
    entry: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    assert decided(entry, **settings) == Decision("session", why)


def test_a_setting_says_that_a_server_keeps_no_state_whatever_its_name() -> None:
    assert decided({"command": "memory"}, stateful=False).isolation == "shared"


def test_a_server_that_asks_for_roots_has_an_instance_for_each_folder() -> None:
    assert decided(PLAIN, Shown.ASKS_FOR_ROOTS) == Decision("directory", "it asks for the roots of its client")


@pytest.mark.parametrize(
    ("arguments", "depends"),
    [
        (b'{"repo_path": "."}', True),
        (b'{"paths":["a","../b"]}', True),
        (rb'{"path":"..\\b"}', True),
        (b'{"path":"/a/.","ending":".py","dots":"...","name":".git"}', False),
        (rb'{"code":"open(\"./a\")"}', False),
    ],
)
def test_a_call_with_a_relative_path_depends_on_the_folder(arguments: bytes, depends: bool) -> None:
    assert depends_on_folder(server(PLAIN), arguments) is depends
    assert not depends_on_folder(server({**PLAIN, "cwd": "/somewhere"}), arguments)


def test_a_server_whose_lists_differ_has_an_instance_for_each_client_whatever_else_it_shows() -> None:
    decision = decided(PLAIN, Shown.ASKS_FOR_ROOTS, Shown.LISTS_BY_CLIENT)
    assert decision == Decision("session", "what it lists depends on what its client can do")


@pytest.mark.parametrize("setting", ["shared", "directory", "session"])
def test_what_is_set_is_done_whatever_the_server_shows(setting: str) -> None:
    own = decided({"command": "memory"}, *Shown, isolation=setting)
    assert own == Decision(setting, f"`isolation` for this server is `{setting}`")  # type: ignore[arg-type]
    general = decided({"command": "memory"}, *Shown, general=setting)
    assert general == Decision(setting, f"`isolation` for every server is `{setting}`")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["workspaceFolder", "WORKSPACE_FOLDER", "PWD"])
def test_an_entry_with_a_variable_for_the_working_folder_is_read_for_each_client(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setenv("TOKEN", "of the environment")
    monkeypatch.chdir(tmp_path)
    entry = {
        "command": "x",
        "args": [f"${{{name}}}/data", "${TOKEN}"],
        "env": {"ROOT": f"${name}", "TOKEN": "$TOKEN"},
        "cwd": f"${{{name}:-/elsewhere}}/sub",
    }
    decision = decided(entry)
    assert decision == Decision("directory", f"its entry has the variable {name}, which stands for the working folder")
    for folder, read in ((tmp_path, server(entry)), ("/home/ann", in_folder(server(entry), "/home/ann"))):
        assert isinstance(read, StdioServer)
        assert read.args == (f"{folder}/data", "of the environment")
        assert read.environment() == {"ROOT": str(folder), "TOKEN": "of the environment"}
        assert read.cwd == f"{folder}/sub"


def test_a_variable_of_that_name_in_the_environment_is_what_the_server_is_first_read_with() -> None:
    loaded = load_config({"mcpServers": {"a": {"command": "x", "args": ["$WORKSPACE_FOLDER"]}}}, environ=FIXED)
    found = loaded.servers["a"]
    assert isinstance(found, StdioServer)
    assert found.args == ("/fixed",)


def test_an_entry_whose_variables_have_no_value_in_any_folder_stays_without() -> None:
    entry = {"command": "x", "args": ["$PWD", "$NO_SUCH_VARIABLE_ANYWHERE"]}
    found = load_config({"mcpServers": {"a": entry}}, strict=False).servers["a"]
    assert isinstance(found, UnresolvedServer)
    assert in_folder(found, "/home/ann") is found


def test_a_reason_tells_nothing_of_arguments_and_variables() -> None:
    entry = {"command": "npx", "args": ["--token=./s3cret", "s3cret.json"], "env": {"S3CRET": "./s3cret"}}
    assert "s3cret" not in decided(entry).reason.lower()


def test_the_decision_follows_new_evidence_from_then_on_and_evidence_is_kept_once() -> None:
    kept: list[frozenset[str]] = []
    evidence = Evidence(server(PLAIN), options(PLAIN), ["of another version"], kept.append)
    assert evidence.is_shared
    evidence.show(Shown.ASKS_FOR_ROOTS)
    evidence.show(Shown.ASKS_FOR_ROOTS)
    assert evidence.decision.isolation == "directory"
    assert kept == [{"asks_for_roots"}]
    evidence.show(Shown.LISTS_BY_CLIENT)
    assert evidence.decision.isolation == "session"


@pytest.mark.parametrize(("cwd", "expected"), [(None, "/home/ann"), ("sub", "/home/ann/sub"), ("/srv", "/srv")])
def test_a_process_is_started_in_the_clients_folder_unless_its_entry_names_one(cwd: str | None, expected: str) -> None:
    entry = {"command": "x", **({"cwd": cwd} if cwd else {})}
    assert in_folder(server(entry), "/home/ann").cwd == expected  # type: ignore[union-attr]
    assert in_folder(server(entry), None) == server(entry)
    remote = server({"url": "https://example.com/mcp"})
    assert in_folder(remote, "/home/ann") is remote


def test_a_server_that_has_come_up_is_no_longer_late_and_what_else_it_has_shown_stays() -> None:
    kept: list[frozenset[str]] = []
    evidence = Evidence(server(PLAIN), options(PLAIN), ["late", "relative_paths"], kept.append)
    evidence.is_up()
    evidence.is_up()
    assert evidence.shown == {Shown.RELATIVE_PATHS}
    assert kept == [{Shown.RELATIVE_PATHS}]
