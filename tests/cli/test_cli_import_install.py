"""`import`, `install` and `uninstall`, as somebody runs them on a machine with several clients."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.command_line import Ended, run_main
from support.harness import PATIENCE, lean
from support.machines import machine, put

from fastmcp_aggregator.cli.actions import import_servers, install
from fastmcp_aggregator.cli.running.given_files import env_text, variables_of
from fastmcp_aggregator.client_configs import installing
from fastmcp_aggregator.client_configs.installing import backup_of
from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS, Machine
from fastmcp_aggregator.client_configs.merging import merged

SECRET = "ghp_abcdefghijklmnop1234"

INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "Zed", "version": "1"}}
ASKED = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]


Run = Callable[..., Ended]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine of a person who has servers in Claude Desktop and Cursor, and stands in a project."""
    here = machine(tmp_path, sys.platform)
    monkeypatch.setenv("HOME", str(here.home))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "CLINE_MCP_SETTINGS_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(here.project)
    desktop = {"github": {"command": "npx", "args": ["-y", "server-github"], "env": {"GITHUB_TOKEN": SECRET}}}
    cursor = {"github": {"url": "https://api.example.com/mcp"}, "time": {"command": "mcp-server-time"}}
    put(CLIENT_CONFIGS["claude-desktop"].user_files(here)[0], json.dumps({"mcpServers": desktop}))
    put(CLIENT_CONFIGS["cursor"].user_files(here)[0], json.dumps({"mcpServers": cursor}))
    return here


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], here: Machine) -> Run:
    return lambda *arguments: run_main(capfd, arguments)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, *answers: str) -> Terminal:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{line}\n" for line in answers)))
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


# import


def test_import_shows_what_each_client_has_and_writes_nothing(run: Run, here: Machine) -> None:
    ended = run("import")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        f"Claude Desktop  {CLIENT_CONFIGS['claude-desktop'].user_files(here)[0]}",
        "  github  stdio  npx -y server-github",
        "          env: GITHUB_TOKEN=•••",
        f"Cursor  {here.home}/.cursor/mcp.json",
        "  github  http   https://api.example.com/mcp",
        "  time    stdio  mcp-server-time",
    ]
    assert "No config found of: Claude Code, VS Code, Windsurf, Zed, Cline, Gemini CLI, Codex." in ended.err
    assert "'github' differs between Claude Desktop and Cursor" in ended.err
    assert "import --output mcp.json" in ended.err
    assert SECRET not in ended.out + ended.err
    assert list(here.project.iterdir()) == []


def test_import_as_json_has_the_same_without_secrets(run: Run) -> None:
    ended = run("import", "--json", "--from", "claude-desktop")
    (file,) = json.loads(ended.out)["files"]
    assert file["client"] == "claude-desktop"
    assert file["servers"]["github"]["entry"]["env"] == {"GITHUB_TOKEN": "•••"}
    assert SECRET not in ended.out


def test_import_says_which_servers_of_other_projects_it_leaves(run: Run, here: Machine) -> None:
    (path,) = CLIENT_CONFIGS["claude-code"].user_files(here)
    servers = {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}
    mine = {"mcpServers": {"c": {"command": "z"}}}
    put(path, json.dumps({"projects": {"/other": servers, "/empty": {}, str(here.project): mine}}))
    left = "2 servers of /other left out; import in that folder takes them"
    assert f"  c  stdio  z\n  {left}\n" in run("import", "--from", "claude-code").out
    told = json.loads(run("import", "--from", "claude-code", "--json").out)
    assert told["files"][0]["otherProjects"] == {"/other": 2}
    ended = run("import", "--from", "claude-code", "--output", "mcp.json")
    assert f"Of what was there:\n  Claude Code: {left}\n" in ended.out
    assert list(json.loads((here.project / "mcp.json").read_text())["mcpServers"]) == ["c"]


def test_import_without_any_server_says_so(run: Run, here: Machine) -> None:
    put(CLIENT_CONFIGS["zed"].user_files(here)[0], "{}")
    ended = run("import", "--from", "zed", "--from", "codex")
    assert ended.code == 1
    assert "  no servers\n" in ended.out
    assert run("import", "--from", "codex", "--output", "x.json").code == 2


def test_import_writes_one_config_that_serves_the_same(run: Run, here: Machine) -> None:
    ended = run("import", "--output", "mcp.json", "--rename")
    assert ended.code == 0
    written = here.project / "mcp.json"
    assert list(json.loads(written.read_text())["mcpServers"]) == ["github", "github-cursor", "time"]
    assert written.stat().st_mode & 0o777 == 0o600
    assert "github: another definition is now github-cursor" in ended.out
    assert run("check", "mcp.json", "--no-strict").code == 0


def test_secrets_go_to_a_file_of_their_own_and_come_back_by_it(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    options = ("--output", "mcp.json", "--rename", "--secrets-as-variables")
    ended = run("import", *options, "--env-file", "mcp.env")
    assert ended.code == 0
    assert SECRET not in ended.out + ended.err + (here.project / "mcp.json").read_text()
    assert variables_of("mcp.env") == {"GITHUB_TOKEN": SECRET}
    assert (here.project / "mcp.env").stat().st_mode & 0o777 == 0o600
    failed = run("check", "mcp.json")
    assert "GITHUB_TOKEN is not set" in failed.out
    assert "is not set" not in run("check", "mcp.json", "--env-file", "mcp.env").out
    ended = run("import", *options, "--overwrite", "--json")
    assert json.loads(ended.out)["variables"] == ["GITHUB_TOKEN"]
    assert "export GITHUB_TOKEN=…" in run("import", *options, "--overwrite").out


def test_a_client_whose_file_is_broken_is_named_and_ends_an_import_with_code_1(run: Run, here: Machine) -> None:
    broken = put(CLIENT_CONFIGS["zed"].user_files(here)[0], '{"context_servers": ')
    ended = run("import")
    assert (ended.code, "is not valid JSON" in ended.out) == (1, True)
    ended = run("import", "--output", "mcp.json", "--rename")
    assert ended.code == 1
    assert f"warning: {broken} of Zed is left out: $ is not valid JSON" in ended.err.replace("$:", "$")
    assert "github" in json.loads((here.project / "mcp.json").read_text())["mcpServers"]


def test_import_takes_what_a_repository_has_brought_only_if_it_is_told_to(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here.project / ".mcp.json", json.dumps({"mcpServers": {"evil": {"command": "evil"}}}))
    put(here.project / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"worse": {"command": "evil"}}}))

    def taken() -> list[str]:
        return [key for key in json.loads((here.project / "mcp.json").read_text())["mcpServers"] if key != "time"]

    options = ("--output", "mcp.json", "--overwrite", "--rename", "--from", "claude-code", "--from", "cursor")
    ended = run("import", *options)
    assert f"{here.project}/.mcp.json belongs to this project and is left out; give --yes" in ended.err
    assert taken() == ["github"]
    assert run("import", *options, "--yes").code == 0
    assert taken() == ["evil", "github", "worse"]
    assert run("import", ".mcp.json", "--output", "mcp.json", "--overwrite").code == 0
    assert taken() == ["evil"]
    screen = answer(monkeypatch, "n", "y")
    assert run("import", *options).code == 0
    assert f"{here.project}/.mcp.json belongs to this project. Take its servers (evil)? [y/N]" in screen.getvalue()
    assert taken() == ["github", "worse"]
    answer(monkeypatch, "n")
    assert run("import", "--output", "x.json", "--from", "claude-code").code == 2


def test_import_refuses_to_choose_and_to_overwrite_by_itself(run: Run, here: Machine) -> None:
    ended = run("import", "--output", "mcp.json")
    assert ended.code == 2
    assert "'github' differs between Claude Desktop and Cursor\nGive --rename" in ended.err
    put(here.project / "mcp.json", "mine")
    ended = run("import", "--output", "mcp.json", "--rename")
    assert ended.code == 2
    assert "mcp.json exists; give --overwrite" in ended.err
    assert (here.project / "mcp.json").read_text() == "mine"


@pytest.mark.parametrize("option", ["--output", "--env-file"])
@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_import_writes_through_no_link_to_a_file_that_is_not_there(
    option: str, more: tuple[str, ...], run: Run, here: Machine, tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere"
    (here.project / "a.json").symlink_to(target)
    names = {"--output": "mcp.json", "--env-file": "servers.env", option: "a.json"}
    options = [each for pair in names.items() for each in pair]
    ended = run("import", *options, "--secrets-as-variables", "--rename", *more)
    assert ended.code != 0
    assert f"a.json is a link to {target}, which is not there" in ended.err
    assert not target.exists()


@pytest.mark.parametrize(("choice", "keys"), [("2", ["github", "time"]), ("3", ["github", "github-cursor", "time"])])
def test_on_a_terminal_import_asks(
    choice: str, keys: list[str], run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here.project / "mcp.json", "mine")
    screen = answer(monkeypatch, "y", choice)
    assert run("import", "--output", "mcp.json").code == 0
    servers = json.loads((here.project / "mcp.json").read_text())["mcpServers"]
    assert list(servers) == keys
    assert ("url" in servers["github"]) is (choice == "2")
    assert "Claude Desktop: stdio  npx -y server-github" in screen.getvalue()
    assert "mcp.json exists. Replace it? [y/N]" in screen.getvalue()


@pytest.mark.parametrize("there", [True, False])
def test_import_leaves_what_is_written_meanwhile(
    there: bool, run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there:
        put(here.project / "mcp.json", "mine")

    def late(*given: Any) -> Any:
        put(here.project / "mcp.json", "meanwhile")
        return merged(*given)

    monkeypatch.setattr(import_servers, "merged", late)
    ended = run("import", "--output", "mcp.json", "--rename", *(["--overwrite"] if there else []))
    assert ended.code == 2
    assert "mcp.json was written meanwhile, and is left as it is" in ended.err
    assert (here.project / "mcp.json").read_text() == "meanwhile"


def test_a_wrong_answer_is_asked_again_and_none_ends_it(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = answer(monkeypatch, "", "0", "x", "4", "²", "2")
    assert run("import", "--output", "mcp.json").code == 0
    assert screen.getvalue().count("Give a number from 1 to 3: ") == 5
    assert "url" in json.loads((here.project / "mcp.json").read_text())["mcpServers"]["github"]
    answer(monkeypatch, "?")
    ended = run("import", "--output", "other.json")
    assert ended.code == 2
    assert not (here.project / "other.json").exists()


def test_choices_that_look_the_same_say_what_differs(run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, more in (("a", {"env": {"KEY": "sekret"}}), ("b", {"timeout": 60})):
        put(here.project / f"{name}.json", json.dumps({"mcpServers": {"time": {"command": "t", **more}}}))
    screen = answer(monkeypatch, "1")
    assert run("import", "a.json", "b.json", "--output", "mcp.json").code == 0
    assert '(env: {"KEY": "•••"}, no timeout)' in screen.getvalue()
    assert "(no env, timeout: 60)" in screen.getvalue()


def test_only_configs_that_were_looked_for_are_said_to_be_missing(run: Run, here: Machine) -> None:
    assert "No config found" not in run("import", "--from", "cursor").err
    assert "No config found of: Zed.\n" in run("import", "--from", "cursor", "--from", "zed").err
    put(here.project / "x.json", '{"mcpServers": {}}')
    told = run("import", "x.json").err
    assert ("No config found" in told, "name the file" in told) == (False, False)


def test_the_command_that_writes_what_is_shown_reads_the_same(run: Run, here: Machine) -> None:
    put(here.project / "my servers.json", '{"mcpServers": {"a": {"command": "x"}}}')
    assert run("import", "my servers.json").err.endswith(
        ": fastmcp-aggregator import 'my servers.json' --output mcp.json\n"
    )
    put(here.home / ".cursor" / "mcp.json", '{"mcpServers": {"a": {"command": "x"}}}')
    assert run("import", "--from", "cursor").err.endswith("import --from cursor --output mcp.json\n")


def test_who_has_no_server_yet_is_told_how_to_begin(run: Run, here: Machine) -> None:
    told = run("import", "--from", "zed").err
    (line,) = (line for line in told.splitlines() if "write mcp.json: " in line)
    put(here.project / "mcp.json", line.partition("mcp.json: ")[2])
    assert run("check", "mcp.json").out.startswith("mcp.json: 1 server\n")
    assert "name the file: fastmcp-aggregator import FILE\n" in told


def test_an_entry_leads_through_no_folder_that_it_leaves_again(run: Run, here: Machine) -> None:
    put(here.project.parent / "mcp.json", '{"mcpServers": {}}')
    put(here.project.parent / "mcp.env", "")
    ended = run("install", "zed", "--config", "../mcp.json", "--env-file", "../mcp.env", "--yes")
    assert ended.code == 0, ended.err
    assert f'"{here.project.parent.resolve()}/mcp.json"' in ended.out
    assert f'"{here.project.parent.resolve()}/mcp.env"' in ended.out


def test_import_warns_of_what_the_aggregator_would_refuse(run: Run, here: Machine) -> None:
    put(here.project / "x.json", '{"mcpServers": {"a": {"url": "ftp://x"}, "b": 5}}')
    ended = run("import", "x.json", "--output", "mcp.json")
    assert "warning: $.mcpServers.a.url: must begin with http" in ended.err
    assert run("import", "x.json").out.splitlines()[-1].strip() == "is not an object"


def test_a_file_that_cannot_be_written_is_said(run: Run) -> None:
    ended = run("import", "--output", "none/mcp.json", "--rename")
    assert (ended.code, "cannot write none/mcp.json" in ended.err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["x.json", "--from", "cursor"],
        ["--env-file", "x.env", "--output", "y"],
        ["--rename"],
        ["--from", "nobody"],
    ],
)
def test_import_options_that_do_not_go_together_are_refused(arguments: list[str], run: Run) -> None:
    with pytest.raises(SystemExit) as ended:
        run("import", *arguments)
    assert ended.value.code == 2


# The file of variables


def test_values_of_every_kind_come_back_from_a_file_of_variables(tmp_path: Path) -> None:
    values = {"A": 'it\'s $HOME \\ "x" #1', "B": "two\nlines", "C": "", "D": "ü"}
    assert variables_of(str(put(tmp_path / "x.env", env_text(values)))) == values


def test_a_file_of_variables_that_cannot_be_read_is_said(run: Run, here: Machine) -> None:
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    (here.project / "bad.env").write_bytes(b"\xff")
    assert "it is not UTF-8" in run("check", "mcp.json", "--env-file", "bad.env").err
    ended = run("check", "mcp.json", "--env-file", "none.env")
    assert (ended.code, ended.err) == (2, "--env-file none.env cannot be read: No such file or directory\n")


def test_a_line_of_a_file_of_variables_without_a_value_sets_nothing(run: Run, here: Machine) -> None:
    put(here.project / "mcp.json", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"K": "${TEST_UNSET}"}}}}))
    put(here.project / "mcp.env", "TEST_UNSET=\n")
    assert "TEST_UNSET is not set" in run("check", "mcp.json", "--env-file", "mcp.env").out
    ended = run("install", "zed", "--config", "mcp.json", "--env-file", "mcp.env", "--yes")
    assert "the config needs TEST_UNSET" in ended.err


# Variables without a value


VSCODE = {
    "docs": {"url": "https://a/mcp", "headers": {"Authorization": "Bearer ${input:docs-token}"}},
    "db": {"command": "db", "env": {"URL": "${input:pg-url}", "TOKEN": "${input:docs-token}", "API_TOKEN": SECRET}},
    "off": {"command": "x", "env": {"A": "${input:never}"}, "disabled": True},
}
NEEDED = {"DOCS_TOKEN": ["docs", "db"], "PG_URL": ["db"]}


@pytest.fixture
def vscode(here: Machine) -> str:
    put(here.project / ".vscode" / "mcp.json", json.dumps({"servers": VSCODE}))
    return ".vscode/mcp.json"


def test_import_names_the_variables_without_a_value_and_who_needs_them(run: Run, here: Machine, vscode: str) -> None:
    ended = run("import", vscode)
    assert "The variable DOCS_TOKEN has no value; needed by: docs, db." in ended.err
    assert "NEVER" not in ended.err
    assert json.loads(run("import", vscode, "--json").out)["withoutValue"] == NEEDED
    ended = run("import", vscode, "--output", "mcp.json")
    assert "These variables have no value; set them, or the servers that need them fail:" in ended.out
    assert "\n  DOCS_TOKEN  (docs, db)\n  PG_URL  (db)\n" in ended.out


def test_import_leaves_a_line_to_fill_in_for_each_variable_without_a_value(
    run: Run, here: Machine, vscode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("API_TOKEN", raising=False)
    options = ("--output", "mcp.json", "--secrets-as-variables", "--env-file", "mcp.env")
    ended = run("import", vscode, *options)
    assert (here.project / "mcp.env").read_text() == f"API_TOKEN='{SECRET}'\nDOCS_TOKEN=\nPG_URL=\n"
    assert "These variables have no value; write their values into mcp.env, or the servers" in ended.out
    assert json.loads(run("import", vscode, *options, "--overwrite", "--json").out)["withoutValue"] == NEEDED
    failed = run("check", "mcp.json", "--env-file", "mcp.env")
    assert (failed.code, failed.out.count("is not set")) == (2, 2)
    put(here.project / "mcp.env", f"API_TOKEN='{SECRET}'\nDOCS_TOKEN=a\nPG_URL=b\n")
    assert "is not set" not in run("check", "mcp.json", "--env-file", "mcp.env").out


def test_install_takes_a_config_with_a_variable_without_a_value_and_says_who_fails(run: Run, here: Machine) -> None:
    servers = {"a": {"command": "x", "env": {"K": "${TEST_UNSET}"}}, "b": {"command": "y", "args": ["$HOME"]}}
    put(here.project / "mcp.json", json.dumps({"mcpServers": servers}))
    ended = run("install", "zed", "--config", "mcp.json", "--yes")
    assert ended.code == 0
    assert "warning: the config needs TEST_UNSET, which" in ended.err
    assert "without them, these fail: a." in ended.err


def test_paths_and_time_zones_are_no_secrets(run: Run, here: Machine) -> None:
    env = {"MEMORY_FILE_PATH": f"{here.home}/memory.json", "KEY": "/abc/def+12", "TZ": "Europe/Berlin"}
    entry = {"command": "x", "args": ["--local-timezone", "Europe/Berlin", "--who", "Some/Body"], "env": env}
    put(here.project / "x.json", json.dumps({"mcpServers": {"a": entry}}))
    ended = run("import", "x.json", "--output", "mcp.json", "--secrets-as-variables", "--json")
    assert json.loads(ended.out)["variables"] == ["KEY", "A_WHO"]
    written = json.loads((here.project / "mcp.json").read_text())["mcpServers"]["a"]
    assert (written["env"], written["args"][1]) == ({**env, "KEY": "${KEY}"}, "Europe/Berlin")


def test_import_says_what_the_folder_of_a_client_becomes(run: Run, here: Machine) -> None:
    put(here.home / ".cursor" / "mcp.json", '{"mcpServers": {"a": {"command": "${workspaceFolder}/x"}}}')
    out = run("import", "--from", "cursor").out
    assert "has become ${WORKSPACE_FOLDER}: the folder that a client works in; for one that has none" in out


def test_the_file_to_write_missing_values_into_is_named(run: Run, here: Machine) -> None:
    put(here.project / "mcp.json", json.dumps({"mcpServers": {"a": {"command": "x", "env": {"K": "${TEST_UNSET}"}}}}))
    put(here.project / "sec.env", "TEST_UNSET=\n")
    ended = run("install", "zed", "--config", "mcp.json", "--env-file", "sec.env", "--yes")
    assert "Write the values into sec.env; without them, these fail: a." in ended.err


# install and uninstall


def test_a_client_is_given_the_aggregator_and_becomes_what_it_was(run: Run, here: Machine) -> None:
    path = here.home / ".cursor" / "mcp.json"
    before = path.read_bytes()
    run("import", "--from", "cursor", "--output", "mcp.json")
    ended = run("install", "cursor", "--config", "mcp.json", "--yes")
    assert ended.code == 0
    entry = json.loads(path.read_text())["mcpServers"]["hub"]
    assert entry["args"][-3:] == ["attach", str(here.project / "mcp.json"), "--no-strict"]
    assert entry["env"] == {"PATH": entry["env"]["PATH"]}
    assert f"What was there before is kept in {backup_of(path)}." in ended.err
    assert f"github, time: in {path} as well as in mcp.json. To take them out of {path}, add --move." in ended.err
    again = run("install", "cursor", "--config", "mcp.json", "--yes")
    assert (again.code, again.out) == (0, f"{path} has it already\n")
    ended = run("uninstall", "cursor", "--yes")
    assert (ended.code, ended.err) == (0, f"{path} is what it was before.\n")
    assert path.read_bytes() == before
    assert not backup_of(path).exists()
    assert run("uninstall", "cursor", "--yes").code == 1


def test_a_file_that_the_client_itself_cannot_read_is_said(run: Run, here: Machine) -> None:
    path = CLIENT_CONFIGS["claude-desktop"].user_files(here)[0]
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    path.write_text('\ufeff{\n  // a "//"\n  "a": "/* , ] */ //",\n  "b": [1, 2,],\n  "mcpServers": {}\n}')
    told = (
        "Claude Desktop cannot read this file: line 1 has a byte order mark, line 2 has a comment, line 4 has a comma "
        "after the last item. It reads plain JSON, and starts nothing until that is mended"
    )
    line = ["install", "claude-desktop", "--config", "mcp.json", "--yes"]
    for _ in range(2):  # the second time, it is there already
        assert f"warning: {told}.\n" in run(*line).err
    assert "Claude Desktop starts the aggregator once that is mended." in run(*line, "--name", "other").err
    assert told.replace("line 1 has a byte order mark, ", "") in run("import").out
    assert "cannot read this file" not in run("install", "zed", *line[2:], "--client-config", str(path)).err
    path.write_text('{"a": "// , ]"}')
    ended = run(*line)
    assert "cannot read this file" not in ended.err
    assert "Claude Desktop starts the aggregator from now on." in ended.err


@pytest.mark.parametrize("options", [[], ["--move"]])
def test_the_file_that_the_aggregator_is_put_into_is_not_served_by_it(
    options: list[str], run: Run, here: Machine
) -> None:
    path = here.home / ".cursor" / "mcp.json"
    before = path.read_bytes()
    ended = run("install", "cursor", "--config", str(path.parent / ".." / ".cursor" / "mcp.json"), "--yes", *options)
    assert ended.code == 2
    assert "is Cursor's own file; make a config of its servers first" in ended.err
    assert "fastmcp-aggregator import --from cursor --output mcp.json" in ended.err
    assert path.read_bytes() == before


def test_what_is_taken_out_is_shown_but_for_what_somebody_has_added(run: Run, here: Machine) -> None:
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    assert run("install", "cursor", "--config", "mcp.json", "--yes").code == 0
    path = here.home / ".cursor" / "mcp.json"
    path.write_text(path.read_text().replace('"PATH"', '"TOKEN": "hunter2", "PATH"'))
    ended = run("uninstall", "cursor", "--yes")
    assert f' "{here.project}/mcp.json",\n' in ended.out
    assert ' "TOKEN": "•••", "PATH": "/' in ended.out
    assert "hunter2" not in ended.out


def test_import_says_which_name_cannot_stay(run: Run, here: Machine) -> None:
    servers = {"git:hub": {"command": "x"}, "ok": {"command": "y"}}
    put(here.home / ".cursor" / "mcp.json", json.dumps({"mcpServers": servers}))
    told = "becomes 'git-hub': a name has no `:`, which separates it from those of tools"
    assert f"{told}\n" in run("import", "--from", "cursor").out
    assert f"  Cursor, git:hub: {told}\n" in run("import", "--from", "cursor", "--output", "out.json").out


def test_what_undoes_an_installation_is_told_with_its_name_and_file(run: Run, here: Machine) -> None:
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    line = ["install", "cursor", "--config", "mcp.json", "--yes"]
    assert "\nTo undo it: fastmcp-aggregator uninstall cursor\n" in run(*line).err
    ended = run(*line, "--name", "my hub", "--client-config", "other.json")
    assert "uninstall cursor --client-config other.json --name 'my hub'\n" in ended.err
    assert run("uninstall", "cursor", "--client-config", "other.json", "--name", "my hub", "--yes").code == 0


def test_paths_of_this_machine_in_the_file_of_a_project_are_told(run: Run, here: Machine) -> None:
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    line = ["install", "claude-code", "--config", "mcp.json", "--yes"]
    assert "project" not in run(*line).err
    for _ in range(2):  # it is so as well if it has it already
        told = run(*line, "--client-config", ".mcp.json").err
        assert f"warning: {here.project / '.mcp.json'} is a project's file, but " in told
        assert f"{here.project / 'mcp.json'} and the PATH are of this machine" in told
        assert "close it first" not in told  # it is another file that Claude Code writes


@pytest.mark.process
def test_a_client_that_had_no_file_is_said(run: Run, here: Machine) -> None:
    (here.project / "mcp.json").write_text(json.dumps({"mcpServers": {"time": lean()}}))
    file = CLIENT_CONFIGS["windsurf"].user_files(here)[0]
    new = run("install", "windsurf", "--config", "mcp.json", "--yes")
    assert f"There was no {file}; if Windsurf reads another file, give it with --client-config FILE." in new.err
    again = run("install", "windsurf", "--config", "mcp.json", "--yes", "--group", "web")
    assert "There was no" not in again.err


@pytest.mark.process
def test_what_a_client_is_given_starts_with_its_bare_environment(run: Run, here: Machine) -> None:
    put(here.project / "mcp.json", json.dumps({"mcpServers": {"a": {**lean(), "env": {"K": "${MY_KEY}"}}}}))
    put(here.project / "mcp.env", "MY_KEY=secret-value\n")
    ended = run("install", "zed", "--config", "mcp.json", "--env-file", "mcp.env", "--yes", "--json")
    assert "secret-value" not in ended.out
    path = Path(json.loads(ended.out)["path"])
    entry = json.loads(path.read_text())["context_servers"]["hub"]
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        env={**entry["env"], "HOME": str(here.home), "FASTMCP_AGGREGATOR_HUB_IDLE": "0"},
        cwd="/",
        input="".join(f"{json.dumps(message)}\n" for message in ASKED).encode(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout.splitlines()[-1])
    assert listed["result"]["tools"][0]["name"] == "a:echo"
    json.loads(run("uninstall", "zed", "--yes", "--json").out)
    assert not path.exists()


def test_variables_that_the_client_will_not_have_are_told(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-value")
    servers = {"a": {"command": "x", "env": {"K": "${MY_KEY}", "H": "$HOME", "D": "${NONE:-1}"}, "disabled": False}}
    put(here.project / "mcp.json", json.dumps({"mcpServers": servers}))
    ended = run("install", "codex", "--config", "mcp.json", "--yes")
    assert "warning: the config needs MY_KEY, which" in ended.err
    assert "secret-value" not in ended.out + ended.err


def test_install_warns_of_servers_whose_program_is_not_there(run: Run, here: Machine) -> None:
    servers = {"a": {"command": "no-such-command"}, "b": {"command": "sh", "cwd": "/no/such/folder"}}
    put(here.project / "mcp.json", json.dumps({"mcpServers": servers}))
    ended = run("install", "cursor", "--config", "mcp.json", "--yes")
    assert ended.code == 0
    assert "warning: a: command not found: 'no-such-command'; install it, or give its full path" in ended.err
    assert "warning: b: its working directory (`cwd`) is not there." in ended.err


def test_nothing_is_written_unasked(run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here.home / ".cursor" / "mcp.json"
    before = path.read_bytes()
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    ended = run("install", "cursor", "--config", "mcp.json")
    assert (ended.code, "give --yes" in ended.err) == (2, True)
    assert '"hub": {' in ended.out
    answer(monkeypatch, "n")
    assert run("install", "cursor", "--config", "mcp.json").code == 1
    assert path.read_bytes() == before
    answer(monkeypatch, "yes")
    assert run("install", "cursor", "--config", "mcp.json").code == 0
    answer(monkeypatch, "")
    assert run("uninstall", "cursor").code == 1
    assert path.read_bytes() != before


class Meanwhile(Terminal):
    """A terminal on which something else happens before each answer."""

    def __init__(self, *happenings: Callable[[], object], answer: str = "y") -> None:
        super().__init__()
        self._happenings = iter(happenings)
        self._answer = answer

    def readline(self, _size: int = -1) -> str:
        next(self._happenings, lambda: None)()
        return f"{self._answer}\n"


def meanwhile(monkeypatch: pytest.MonkeyPatch, *happenings: Callable[[], object]) -> Terminal:
    screen = answer(monkeypatch)
    monkeypatch.setattr(sys, "stdin", Meanwhile(*happenings))
    return screen


def add_server(path: Path, key: str) -> None:
    document = json.loads(path.read_text())
    document["mcpServers"][key] = {"command": f"{key}-command"}
    path.write_text(json.dumps(document))


def test_what_changes_while_install_asks_is_shown_kept_and_backed_up(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = here.home / ".cursor" / "mcp.json"
    path.chmod(0o640)
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    screen = meanwhile(monkeypatch, lambda: add_server(path, "new"), lambda: add_server(path, "newer"))
    ended = run("install", "cursor", "--config", "mcp.json")
    assert ended.code == 0
    assert list(json.loads(path.read_text())["mcpServers"]) == ["github", "time", "new", "newer", "hub"]
    assert list(json.loads(backup_of(path).read_text())["mcpServers"]) == ["github", "time", "new", "newer"]
    assert screen.getvalue().count(f"Write {path}? [y/N]") == 3
    assert screen.getvalue().count(f"{path} was changed meanwhile") == 2
    assert ended.out.count("+++ ") == 3
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_backup_that_was_not_put_back_is_kept_by_the_next_installation(run: Run, here: Machine) -> None:
    path = here.home / ".cursor" / "mcp.json"
    first = path.read_bytes()
    put(here.project / "mcp.json", '{"mcpServers": {"time": {"command": "x"}}}')
    install = ["install", "cursor", "--config", "mcp.json", "--move", "--yes"]
    for _ in range(2):
        run(*install)
        add_server(path, "new")
        ended = run("uninstall", "cursor", "--yes")
        assert f"What was there before the installation is still in {backup_of(path)}." in ended.err
    kept = backup_of(path).with_name(f"{backup_of(path).name}-1")
    assert kept.read_bytes() == first
    run(*install)
    assert kept.read_bytes() == first
    assert run("uninstall", "cursor", "--yes").err == f"{path} is what it was before.\n"


def test_what_changes_while_uninstall_asks_is_kept(run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here.home / ".cursor" / "mcp.json"
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    assert run("install", "cursor", "--config", "mcp.json", "--yes").code == 0
    screen = meanwhile(monkeypatch, lambda: add_server(path, "new"))
    assert run("uninstall", "cursor").code == 0
    assert list(json.loads(path.read_text())["mcpServers"]) == ["github", "time", "new"]
    assert f"{path} was changed meanwhile" in screen.getvalue()
    assert "only the entry 'hub' was taken out" in screen.getvalue()
    assert backup_of(path).exists()


def test_an_entry_that_somebody_else_takes_out_while_uninstall_asks_is_gone(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = here.home / ".cursor" / "mcp.json"
    before = path.read_bytes()
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    assert run("install", "cursor", "--config", "mcp.json", "--yes").code == 0
    screen = meanwhile(monkeypatch, lambda: path.write_bytes(before))
    assert run("uninstall", "cursor").code == 1
    assert "has no server 'hub'" in screen.getvalue()
    assert path.read_bytes() == before


def test_with_yes_it_is_what_stands_there_when_it_is_written_that_is_changed(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = here.home / ".cursor" / "mcp.json"
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    happenings = iter([lambda: add_server(path, "new")])

    def installed(*arguments: Any) -> Any:
        change = installing.installation(*arguments)
        next(happenings, lambda: None)()
        return change

    monkeypatch.setattr("fastmcp_aggregator.cli.actions.install.installation", installed)
    ended = run("install", "cursor", "--config", "mcp.json", "--yes")
    assert ended.code == 0
    assert list(json.loads(path.read_text())["mcpServers"]) == ["github", "time", "new", "hub"]
    assert "new" in json.loads(backup_of(path).read_text())["mcpServers"]


@pytest.mark.parametrize("given", [("n",), ("",), ()])
def test_an_answer_that_is_no_yes_says_that_nothing_is_written(
    given: tuple[str, ...], run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    screen = answer(monkeypatch, *given)
    assert run("install", "cursor", "--config", "mcp.json").code == 1
    assert screen.getvalue().endswith("Nothing is written.\n")


@pytest.mark.process
def test_ctrl_c_at_the_question_says_that_nothing_is_written(here: Machine) -> None:
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    path = here.home / ".cursor" / "mcp.json"
    before = path.read_bytes()
    command = [sys.executable, "-m", "fastmcp_aggregator", "install", "cursor", "--config", "mcp.json"]
    terminal, theirs = os.openpty()
    process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL, start_new_session=True)
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    with suppress(OSError):  # nobody has the other end any more
        while chunk := os.read(terminal, 4096):
            said += chunk
    assert b"Nothing is written." in said
    os.close(terminal)
    assert path.read_bytes() == before


def test_an_entry_of_a_file_that_has_changed_is_taken_out_alone(run: Run, here: Machine) -> None:
    path = put(here.project / "client.json", '{"mcpServers": {}}')
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    put(here.project / "group.json", '{"groups": []}')
    options = ("--client-config", "client.json", "--name", "all")
    more = ("--groups", "group.json", "--group", "web")
    assert run("install", "gemini-cli", "--config", "mcp.json", "--yes", *options, *more).code == 0
    document = json.loads(path.read_text())
    assert document["mcpServers"]["all"]["args"][-5:-1] == [
        "--groups",
        str(here.project / "group.json"),
        "--group",
        "web",
    ]
    path.write_text(json.dumps({**document, "theme": "dark"}))
    ended = run("uninstall", "gemini-cli", "--yes", *options)
    assert ended.err.startswith(f"{path} has changed since, so only the entry 'all' was taken out.\n")
    assert json.loads(path.read_text()) == {"mcpServers": {}, "theme": "dark"}


def test_install_needs_a_config_that_can_be_served(run: Run, here: Machine) -> None:
    ended = run("install", "cursor")
    assert (ended.code, "fastmcp-aggregator import --output mcp.json" in ended.err) == (2, True)
    assert run("install", "cursor", "--config", "none.json").code == 2
    put(here.project / "mcp.json", json.dumps({"mcpServers": {"a": {"command": "x"}, "b": {"comand": "x"}}}))
    ended = run("install", "cursor", "--config", "mcp.json", "--yes")
    assert (ended.code, "did you mean `command`?" in ended.err) == (2, True)


def test_install_moves_servers_and_uninstall_brings_them_back(run: Run, here: Machine) -> None:
    path = here.home / ".cursor" / "mcp.json"
    before = path.read_bytes()
    run("import", "--from", "cursor", "--output", "mcp.json")
    config = json.loads((here.project / "mcp.json").read_text())
    config["mcpServers"]["github-2"] = config["mcpServers"].pop("github")  # as --rename may have it
    put(here.project / "mcp.json", json.dumps(config))
    ended = run("install", "cursor", "--config", "mcp.json", "--move", "--yes")
    assert (ended.code, "as well as" in ended.err) == (0, False)
    assert f"github, time: taken out of {path}, for mcp.json has the same." in ended.err
    assert list(json.loads(path.read_text())["mcpServers"]) == ["hub"]
    assert run("install", "cursor", "--config", "mcp.json", "--move", "--yes").out == f"{path} has it already\n"
    assert run("uninstall", "cursor", "--yes").err == f"{path} is what it was before.\n"
    assert path.read_bytes() == before


@pytest.mark.parametrize("is_given", [True, False])
def test_a_server_whose_secrets_have_become_variables_is_moved_if_the_aggregator_gets_their_values(
    run: Run, here: Machine, is_given: bool
) -> None:
    path = here.home / ".cursor" / "mcp.json"
    github = {"url": "https://api.example.com/mcp", "headers": {"Authorization": "Bearer s3cret-of-github-$$-1"}}
    put(path, json.dumps({"mcpServers": {"github": github, "time": {"command": "mcp-server-time"}}}))
    run("import", "--from", "cursor", "--output", "mcp.json", "--secrets-as-variables", "--env-file", "secrets.env")
    assert "${" in (here.project / "mcp.json").read_text()
    options = ["--env-file", "secrets.env"] if is_given else []
    ended = run("install", "cursor", "--config", "mcp.json", "--move", "--yes", *options)
    assert f"{'github, time' if is_given else 'time'}: taken out of {path}" in ended.err
    assert ("github: not the same in" in ended.err) != is_given
    assert list(json.loads(path.read_text())["mcpServers"]) == (["hub"] if is_given else ["github", "hub"])


@pytest.mark.parametrize(("given", "is_moved"), [(("y", "y"), True), (("n", "y"), False)])
def test_on_a_terminal_it_is_asked_whether_servers_that_would_run_twice_are_moved(
    given: tuple[str, ...], is_moved: bool, run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = here.home / ".cursor" / "mcp.json"
    run("import", "--from", "cursor", "--output", "mcp.json")
    screen = answer(monkeypatch, *given)
    assert run("install", "cursor", "--config", "mcp.json").code == 0
    question = f"github, time: in {path} as well, so both would run. Take them out of there? [y/N]"
    assert screen.getvalue().count(question) == 1
    assert (f"taken out of {path}" in screen.getvalue()) == is_moved
    assert "add --move" not in screen.getvalue()
    assert list(json.loads(path.read_text())["mcpServers"]) == (["hub"] if is_moved else ["github", "time", "hub"])


def test_what_is_to_be_done_before_a_file_is_written_is_said_before_the_question(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    screen = answer(monkeypatch, "n")
    assert run("install", "claude-code", "--config", "mcp.json").code == 1
    said = screen.getvalue()
    assert 0 < said.index("close it first") < said.index("Write ")


def test_servers_that_were_moved_come_back_to_a_file_that_the_client_has_rewritten(run: Run, here: Machine) -> None:
    path = here.home / ".cursor" / "mcp.json"
    before = json.loads(path.read_text())
    run("import", "--from", "cursor", "--output", "mcp.json")
    run("install", "cursor", "--config", "mcp.json", "--move", "--yes")
    put(path, json.dumps({**json.loads(path.read_text()), "more": 1}))
    ended = run("uninstall", "cursor", "--yes")
    assert "github, time: restored, as before the installation." in ended.err
    assert json.loads(path.read_text()) == {**before, "more": 1}


def test_an_aggregator_that_was_taken_out_does_not_come_back_with_the_next(run: Run, here: Machine) -> None:
    path = here.home / ".cursor" / "mcp.json"
    before = json.loads(path.read_text())
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    names = ("one", "two", "three")
    for name in names:
        run("install", "cursor", "--config", "mcp.json", "--name", name, "--yes")
    for name in names:
        assert "restored" not in run("uninstall", "cursor", "--name", name, "--yes").err
    assert json.loads(path.read_text()) == before


@pytest.mark.parametrize("fields", [{"args": 3}, {"args": "secret-4711x"}, {"env": "A=secret-4711x"}, {"env": ["x"]}])
def test_an_entry_with_a_value_of_a_wrong_type_is_shown_and_left_as_it_is(
    run: Run, here: Machine, fields: dict[str, Any]
) -> None:
    path = put(here.home / ".cursor" / "mcp.json", json.dumps({"mcpServers": {"hub": {"command": "x", **fields}}}))
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    before = path.read_text()
    for options in (["import"], ["import", "--json"], ["install", "cursor", "--config", "mcp.json", "--yes"]):
        ended = run(*options)
        assert "unexpected" not in ended.err
        assert "secret-4711x" not in ended.out + ended.err
    assert run("uninstall", "cursor", "--yes").code == 1
    assert path.read_text() == before


@pytest.mark.parametrize("options", [[], ["--move"]])
def test_another_server_of_the_same_name_stays_and_is_told(run: Run, here: Machine, options: list[str]) -> None:
    path = here.home / ".cursor" / "mcp.json"
    put(here.project / "mcp.json", json.dumps({"mcpServers": {"time": {"command": "x"}}}))
    ended = run("install", "cursor", "--config", "mcp.json", "--yes", *options)
    assert f"time: not the same in {path} as in mcp.json; both run. Delete one of them." in ended.err
    assert list(json.loads(path.read_text())["mcpServers"]) == ["github", "time", "hub"]


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_no_backup_is_read_or_written_through_a_link(run: Run, here: Machine, command: str) -> None:
    path, secret = here.project / ".mcp.json", put(here.home / "id_rsa", "secret")
    put(path, '{"mcpServers": {}}')
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    options = ["claude-code", "--client-config", str(path), "--yes"]
    if command == "uninstall":
        run("install", *options, "--config", "mcp.json")
    backup_of(path).unlink(missing_ok=True)
    backup_of(path).symlink_to(secret)
    before = path.read_bytes()
    ended = run(command, *options, *(["--config", "mcp.json"] if command == "install" else []))
    assert (ended.code, f"{backup_of(path)} is a link, and no backup of ours; remove it" in ended.err) == (1, True)
    assert (secret.read_text(), path.read_bytes()) == ("secret", before)
    assert "secret" not in "".join(file.read_text() for file in here.project.iterdir() if not file.is_symlink())


def test_a_client_file_that_is_a_link_to_nothing_is_not_made(run: Run, here: Machine) -> None:
    path = here.project / ".mcp.json"
    path.symlink_to(here.home / "new")
    put(here.project / "mcp.json", '{"mcpServers": {}}')
    ended = run("install", "claude-code", "--client-config", str(path), "--config", "mcp.json", "--yes")
    assert (ended.code, "which is not there" in ended.err, (here.home / "new").exists()) == (1, True, False)


def test_a_read_only_file_of_a_client_is_left_alone(run: Run, here: Machine) -> None:
    path = here.home / ".cursor" / "mcp.json"
    before = path.read_bytes()
    path.chmod(0o400)
    put(here.project / "mcp.json", json.dumps({"mcpServers": {"time": {"command": "x"}}}))
    ended = run("install", "cursor", "--config", "mcp.json", "--yes")
    assert (ended.code, path.read_bytes()) == (1, before)
    assert f"{path} is read-only" in ended.err


def test_the_difference_has_colours_on_a_terminal_that_wants_them(
    run: Run, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here.project / "mcp.json", json.dumps({"mcpServers": {"time": {"command": "x"}}}))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033[" not in run("install", "cursor", "--config", "mcp.json").out
    monkeypatch.delenv("NO_COLOR")
    assert "\033[32m+" in run("install", "cursor", "--config", "mcp.json").out


def test_import_into_a_file_says_again_what_did_not_come_along(run: Run, here: Machine) -> None:
    codex = '[mcp_servers.calc]\ncommand = "calc"\nstartup_timeout_sec = 60\nenabled_tools = ["add"]\n'
    path = put(here.home / "config.toml", codex)
    ended = run("import", str(path), "--output", "mcp.json")
    assert (
        "Of what was there:\n  Codex, calc: `startup_timeout_sec` is left out: the setting `startup_timeout`"
        in ended.out
    )
    assert "calc: `enabled_tools` is left out" in ended.out


def test_install_puts_an_empty_line_before_the_next_table_of_toml(run: Run, here: Machine) -> None:
    path = put(here.home / ".codex" / "config.toml", '[mcp_servers.a]\ncommand = "x"\n\n[profiles.o3]\nmodel = "o3"\n')
    put(here.project / "mcp.json", json.dumps({"mcpServers": {"time": {"command": "x"}}}))
    assert run("install", "codex", "--config", "mcp.json", "--yes").code == 0
    assert '\n\n[profiles.o3]\nmodel = "o3"\n' in path.read_text()


@pytest.mark.parametrize(("hub", "written"), [(None, "serve"), ("mine", "attach")])
def test_on_windows_a_client_shares_a_hub_only_if_it_is_named(
    hub: str | None, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "sys", SimpleNamespace(platform="win32"))
    files = dict.fromkeys(("env_file", "settings", "groups", "group"))
    assert install._arguments(argparse.Namespace(config="mcp.json", hub=hub, own=False, **files))[0] == written
