"""`check`, `list` and `call`, with real children: what they print and how they end."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Ended, run_main
from support.harness import PATIENCE, ServerProcess, config, lean, running, until
from support.processes import are_gone

from fastmcp_aggregator.cli.running.starting import interruptible

pytestmark = pytest.mark.process

SCHEMA = {
    "type": "object",
    "properties": {
        "limit": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "path": {"type": "string"},
    },
}
MISSING = {"command": "no-such-command-anywhere"}


WITHOUT_VALUE = {"command": sys.executable, "args": ["$TEST_KEY_WITHOUT_VALUE"], "env": {"S": "hunter2"}}
NOT_SET = "the environment variable TEST_KEY_WITHOUT_VALUE is not set"


Run = Callable[..., Ended]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command on these servers."""
    path = tmp_path / "config.json"

    def run(command: str, *arguments: str, **servers: dict[str, Any]) -> Ended:
        path.write_text(json.dumps(config(**servers)))
        return run_main(capfd, [command, str(path), *arguments])

    return run


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


# check


def test_check_shows_each_server_and_what_clients_make_of_its_names(run: Run, tmp_path: Path) -> None:
    remote = {"url": "https://user:pass@example.com/mcp?key=1"}
    ended = run("check", "--all", files=lean(record=str(tmp_path / "pids")), **{"my.docs": remote})
    assert ended.code == 0
    assert ended.err == ""
    told, _, versions = ended.out.partition("\nVersions: ")
    assert versions.startswith("fastmcp-aggregator ")
    assert lines(told) == [
        f"{tmp_path}/config.json: 2 servers",
        f"files    stdio  {sys.executable}",
        "my.docs  http   https://•••:•••@example.com/mcp?key=1",
        "",
        "What clients see:",
        "Claude Desktop, Claude Code, OpenAI Codex, ChatGPT, GitHub Copilot CLI "
        "(at most 64 characters, only A-Z a-z 0-9 _ -)",
        "files__<tool>",
        "my_docs__<tool>_<hash>  '.' in the key is refused and becomes _; a hash keeps the names apart",
        "Cursor (at most 50 characters, only A-Z a-z 0-9 _)",
        "files__<tool>",
        "my_docs__<tool>_<hash>  '.' in the key is refused and becomes _; a hash keeps the names apart",
        "VS Code, Gemini CLI, every other client",
        "files:<tool>",
        "my.docs:<tool>",
    ]
    assert not (tmp_path / "pids").exists()


def test_check_of_thirty_servers_fits_on_a_screen(run: Run) -> None:
    unpinned = {f"u{number}": {"command": "npx", "args": ["-y", f"server-{number}"]} for number in range(20)}
    missing = {f"m{number}": {"command": f"missing-{number}"} for number in range(12)}
    unset = {f"v{number}": {"command": sys.executable, "args": [f"$TEST_UNSET_{number}"]} for number in range(12)}
    ended = run("check", "--no-strict", **unpinned, **missing, **unset, **{"odd.key": lean()})
    assert all(name in run("check", "--all", **unpinned).out for name in unpinned)
    told = ended.out.splitlines()
    assert len(told) <= 24
    some = "u0, u1, u2, u3, u4, u5, u6 and 13 more"
    assert f"  the package has no version, so each start may run another one: {some}" in told
    assert "Names that some clients see changed or shortened: those of odd.key" in told
    assert told.index("Errors:") < told.index("To decide:")
    assert any(line.startswith("  … and ") for line in told)


def test_check_in_brief_says_where_a_single_error_is(run: Run) -> None:
    told = run("check", "--no-strict", bad=WITHOUT_VALUE).out.splitlines()
    assert re.search(r"^  bad: the environment variable .* \(.*config.json:\d+\)$", "\n".join(told), re.MULTILINE)


def test_check_tells_all_that_is_wrong_with_a_server(run: Run) -> None:
    closed = "http://127.0.0.1:9/mcp"
    out = run(
        "check",
        a={"command": "no-such-command", "cwd": "/no/such/folder", "args": ["$TEST_KEY_WITHOUT_VALUE"]},
        b={"url": closed, "headers": {"X": "$TEST_KEY_WITHOUT_VALUE"}},
    ).out
    assert re.search(rf"^  {NOT_SET}.*: a \(line 1\), b \(line 1\)$", out, re.MULTILINE)
    assert "a: command not found: 'no-such-command'" in out
    assert "a: its working directory (`cwd`) is not there" in out
    assert "b: nothing listens at port 9 of this machine" in out


def test_check_shows_the_names_under_the_separator_that_is_given(run: Run) -> None:
    out = lines(run("check", "--all", "--separator", "__", files=lean()).out)
    assert "files__<tool>" in out
    assert "files:<tool>" not in out


def test_check_without_prefixes_shows_that_names_stay_as_they_are(run: Run) -> None:
    out = lines(run("check", "--all", "--no-prefix", files=lean(), git=lean()).out.partition("\nVersions: ")[0])
    assert out[-2:] == ["VS Code, Gemini CLI, every other client", "<tool>"]


def test_check_of_a_config_without_servers_is_fine(run: Run) -> None:
    ended = run("check", "--connect")
    assert ended.code == 0
    assert ended.out.startswith(ended.out.split(":")[0] + ": 0 servers\nTo decide:\n  there is no server to serve")
    assert "Nothing to mend" not in ended.out
    assert ended.out.endswith("\n0 of 0 servers running, 0 tools, 0 resources, 0 prompts\n")


def test_check_tells_every_problem_at_once_with_its_line_and_ends_with_code_2(run: Run, tmp_path: Path) -> None:
    unpinned = {"command": "npx", "args": ["-y", "some-server"]}
    ended = run("check", a={"command": 1}, b={"url": "ftp://x"}, c=WITHOUT_VALUE, d=MISSING, e=unpinned)
    assert ended.code == 2
    path = f"({tmp_path}/config.json:1)"
    assert f"  a: `command`: must be a string, not a number; write it in quotes {path}\n" in ended.out
    assert re.search(rf"^  b: `url`: must begin with http.* {re.escape(path)}$", ended.out, re.MULTILINE)
    assert f"  c: {NOT_SET}" in ended.out
    assert "  d: command not found" in ended.out
    assert "  e: some-server has no version" in ended.out
    refused = "config.json is refused without --no-strict: 2 problems of its entries, 1 variable without a value\n"
    assert ended.err.endswith(refused)


def test_check_says_where_a_file_is_wrong_and_that_there_may_be_more(run: Run, tmp_path: Path) -> None:
    ended = run("check", **{"a:b": lean(), "c": {"command": 1}})
    assert (ended.code, ended.out) == (2, "")
    assert "2 problems" in ended.err
    assert '$.mcpServers["a:b"] (line 1): the name of a server must not contain `:`' in ended.err
    assert "$.mcpServers.c.command (line 1): must be a string" in ended.err
    assert ended.err.endswith("\nMore is checked once this is fixed.\n")


@pytest.mark.parametrize("command", [["check"], ["check", "--connect"], ["list"], ["call", "a:echo"]])
def test_a_groups_file_is_examined_before_anything_is_started(run: Run, tmp_path: Path, command: list[str]) -> None:
    groups, record = tmp_path / "group.json", tmp_path / "record"
    groups.write_text(json.dumps({"web": {"servers": ["a", "aa"]}}))
    name, *arguments = command
    ended = run(name, *arguments, "--groups", str(groups), a=lean(record=str(record)))
    assert (ended.code, ended.out) == (2, "")
    assert f"{groups}: 1 problem" in ended.err
    place = "$.web.servers[1] (line 1)" if name == "check" else "$.web.servers[1]"
    assert f"{place}: there is no server 'aa'; did you mean 'a'?" in ended.err
    assert not record.exists()


def test_the_groups_file_is_a_setting(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = tmp_path / "group.json"
    groups.write_text(json.dumps({"web": {"servers": ["b"]}}))
    monkeypatch.setenv("FASTMCP_AGGREGATOR_GROUPS", str(groups))
    assert f"{groups}: 1 problem" in run("check", a=lean()).err
    (problem,) = json.loads(run("check", "--json", a=lean()).out)["problems"]
    assert (problem["path"], problem["line"]) == ("$.web.servers[0]", 1)
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"web": {"servers": ["a"]}}))
    assert f"{other}: 1 group\n" in run("check", "--groups", str(other), a=lean()).out


def test_check_tells_of_a_groups_file_and_as_json_where_it_is_wrong(run: Run, tmp_path: Path) -> None:
    groups = tmp_path / "group.json"
    groups.write_text('{\n"web":\n{"servers": ["a"]}}')
    assert f"{groups}: 1 group\n" in run("check", "--groups", str(groups), a=lean()).out
    groups.write_text('{\n"web":\n{"servers": ["b"]}}')
    ended = run("check", "--json", "--groups", str(groups), a=lean())
    (problem,) = json.loads(ended.out)["problems"]
    assert (ended.code, problem["path"], problem["line"]) == (2, "$.web.servers[0]", 3)


def test_the_problems_of_config_and_settings_are_told_together(run: Run, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("nonsense = 1")
    ended = run("check", "--settings", str(settings), a={})
    assert ended.code == 2
    assert "2 problems" in ended.err
    assert "config.json $.mcpServers.a (line 1): " in ended.err
    assert "settings.toml $.nonsense: " in ended.err
    assert run("check", "--settings", str(settings), a=MISSING).code == 2


def test_settings_for_a_server_that_is_not_there_are_mentioned(run: Run, tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"servers": {"gti": {"era": "legacy"}}}')
    ended = run("check", "--settings", str(settings), git=lean())
    assert ended.code == 0
    assert ended.err.startswith("warning: there are settings for the server 'gti', which is not in ")


def test_check_connect_shows_the_names_that_some_client_sees_changed(run: Run, tmp_path: Path) -> None:
    record = tmp_path / "pids"
    odd = lean(record=str(record), tool_names=["git.log", "l" * 55], prompts=[{"name": "sum up"}])
    ended = run("check", "--all", "--connect", git=odd)
    assert ended.code == 0
    assert ended.err == ""
    changes = lines(ended.out.partition("Names that some clients see changed:\n")[2])
    strict = "Claude Desktop, Claude Code, OpenAI Codex, ChatGPT, GitHub Copilot CLI"
    shape = [re.sub("[0-9a-f]{8} ", "# ", line) for line in changes]
    assert shape == [
        "git:git.log",
        f"git__git_log_#  {strict}, Cursor",
        f"git:{'l' * 55}",
        f"git__{'l' * 36}_#  Cursor",
        "git:sum up",
        f"git__sum_up_#  {strict}, Cursor",
    ]
    assert are_gone(record)


def test_check_connect_in_brief_counts_the_names_that_change(run: Run) -> None:
    ended = run("check", "--connect", git=lean(tool_names=["git.log", "git.diff"]))
    assert "\n  git: 2 names in Claude Desktop, Claude Code, OpenAI Codex, ChatGPT, " in ended.out


@pytest.mark.parametrize("options", [[], ["--json"], ["--all"], ["--connect"]])
def test_check_ends_with_code_2_when_it_finds_an_error(options: list[str], run: Run) -> None:
    assert run("check", *options, bad=MISSING).code == 2
    assert run("check", *options, "--no-strict", bad=MISSING).code == 0


def test_check_connect_says_which_servers_failed_and_ends_with_code_3(run: Run) -> None:
    ended = run("check", "--connect", good=lean(), bad={"command": sys.executable, "args": ["-c", "exit(4)"]})
    assert ended.code == 3
    assert "\n  bad: failed: it exited with code 4" in ended.out
    assert "\nNo problems found in the files.\n" in ended.out


def test_check_connect_says_what_of_its_errors_has_come_of_the_servers(run: Run) -> None:
    ended = run("check", "--connect", good=lean(), bad=MISSING)
    assert ended.code == 2
    assert ended.err == ""
    assert "1 of 2 servers running" in ended.out
    assert "\n  bad: failed: command not found: 'no-such-command-anywhere'" in ended.out
    assert run("check", "--connect", "--no-strict", bad=MISSING).code == 0


def test_check_connect_tells_name_conflicts_and_ends_with_code_3(run: Run) -> None:
    ended = run("check", "--connect", "--no-prefix", a=lean(), b=lean())
    assert ended.code == 3
    assert ended.out.count("servers 'a' and 'b' both offer 'echo'") == 1
    assert "Name conflicts:\n" in ended.out


def test_check_tells_a_variable_without_a_value_as_that_servers_error_and_goes_on(run: Run) -> None:
    ended = run("check", "--all", good=lean(), bad=WITHOUT_VALUE, worse=MISSING)
    assert ended.code == 2
    assert ": 3 servers\n" in ended.out
    assert f"  error    bad: {NOT_SET}; set it, or write" in ended.out
    assert "$.mcpServers.bad.args[0]" in ended.out
    assert "  error    worse: command not found" in ended.out
    assert ended.err.endswith("config.json is refused without --no-strict: 1 variable without a value\n")
    ended = run("check", "--all", "--no-strict", good=lean(), bad=WITHOUT_VALUE)
    assert (ended.code, ended.err) == (0, "")
    assert f"  error    bad: {NOT_SET}" in ended.out
    assert "hunter2" not in ended.out


def test_check_as_json_has_a_variable_without_a_value_among_the_findings(run: Run) -> None:
    ended = run("check", "--json", good=lean(), bad=WITHOUT_VALUE)
    document = json.loads(ended.out)
    assert (ended.code, ended.err) == (2, "")
    assert list(document["servers"]) == ["good", "bad"]
    assert [problem["code"] for problem in document["problems"]] == ["missing_env_var"]
    (finding,) = [finding for finding in document["findings"] if finding["severity"] == "error"]
    assert (finding["server"], finding["path"]) == ("bad", "$.mcpServers.bad.args[0]")
    assert "problems" not in json.loads(run("check", "--json", "--no-strict", bad=WITHOUT_VALUE).out)


def test_check_connect_starts_the_others_when_a_variable_has_no_value(run: Run) -> None:
    ended = run("check", "--connect", good=lean(), bad=WITHOUT_VALUE)
    assert ended.code == 2
    assert "1 of 2 servers running" in ended.out
    assert f"\n  bad: failed: {NOT_SET}" in ended.out
    assert run("check", "--connect", "--no-strict", good=lean(), bad=WITHOUT_VALUE).code == 0


def test_check_says_nothing_of_logins_of_servers_that_are_not_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"servers": {"gone": {"oauth": true}}}')
    ended = run("check", "--settings", str(tmp_path / "settings.json"), good=lean())
    assert "logins" not in ended.out
    assert not ended.out.endswith("\n\n")


def test_check_names_some_of_many_servers(run: Run) -> None:
    out = run("check", **{f"odd.{number}": {**lean(), "cwd": "."} for number in range(40)}).out
    some = "odd.0, odd.1, odd.2, odd.3, odd.4, odd.5, odd.6 and 33 more\n"
    assert f"\nWith `attach`, not shared by all clients: {some}" in out
    assert f"those of {some}" in out


def test_check_tells_which_servers_are_not_shared_and_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"plain": lean(), "here": {**lean(), "cwd": "."}, "memory": {"command": "server-memory"}}
    assert "\nWith `attach`, not shared by all clients: here, memory\n" in run("check", **entries).out
    monkeypatch.setenv("FASTMCP_AGGREGATOR_ISOLATION", "auto")
    assert "\nNot shared by all clients, where there are several: here, memory\n" in run("check", **entries).out
    ended = run("check", "--all", **entries)
    assert "\nNot shared by all clients, where there are several:\n" in ended.out
    reason = "its `cwd` is relative to the working folder"
    assert f"\n  here: an instance for each working folder or set of roots: {reason}\n" in ended.out
    assert "\n  memory: an instance for each client session: programs named `memory` keep state\n" in ended.out
    servers = json.loads(run("check", "--json", **entries).out)["servers"]
    assert [server["isolation"] for server in servers.values()] == ["shared", "directory", "session"]
    assert servers["here"]["isolationReason"] == reason
    assert "Not shared" not in run("check", plain=lean()).out


def test_check_connect_tells_what_a_server_shows_while_it_starts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMCP_AGGREGATOR_ISOLATION", "auto")
    asking = lean(asks_for_roots=True)
    ended = run("check", "--connect", a=asking)
    assert "\n  a: an instance for each working folder or set of roots: it asks for the roots" in ended.out
    connected = json.loads(run("check", "--connect", "--json", a=asking).out)["connected"]
    assert connected["isolation"]["a"]["isolation"] == "directory"


@pytest.mark.parametrize("command", [["list"], ["call", "good:echo"]], ids=" ".join)
def test_an_entry_that_is_wrong_is_refused_and_without_strict_it_is_one_server_that_fails(
    run: Run, command: list[str]
) -> None:
    entries = {"good": lean(), "bad": {"comand": "x"}, "worse": lean() | {"env": []}}
    reason = "has `comand`; did you mean `command`?"
    refused = run(*command, **entries)
    assert (refused.code, refused.out) == (2, "")
    assert f"$.mcpServers.bad: {reason}" in refused.err
    ended = run(*command, "--no-strict", **entries)
    assert ended.code == 0
    if command[0] != "call":
        assert reason in ended.out
        assert "`env`: must be an object" in ended.out


# list


def test_list_says_that_there_is_no_server(run: Run) -> None:
    ended = run("list", off=lean() | {"disabled": True})
    assert (ended.code, ended.out) == (0, "")
    assert "config.json has no server to list; `fastmcp-aggregator import`" in ended.err
    assert json.loads(run("list", "--json").out)["servers"] == {}


@pytest.mark.parametrize("command", [["list"], ["call", "a:echo"], ["check", "--connect"]])
def test_servers_that_ask_for_roots_are_not_complained_of(run: Run, command: list[str]) -> None:
    name, *arguments = command
    ended = run(name, *arguments, a=lean(asks_for_roots=True))
    assert (ended.code, ended.err) == (0, "")


def test_list_prints_servers_and_components_as_indented_lines(run: Run, tmp_path: Path) -> None:
    record = tmp_path / "pids"
    rich = lean(
        record=str(record),
        tool_extra={"description": "\n  First line.\nSecond line."},
        resources=[{"uri": "file:///a", "name": "a", "title": "The file"}],
        templates=[{"uriTemplate": "file:///{x}", "name": "t", "description": "\x1b[31m[bold]"}],
        prompts=[{"name": "sum-up", "description": ""}],
    )
    ended = run("list", files=rich, bad=MISSING)
    assert ended.code == 3
    assert ended.err == ""
    out = ended.out.splitlines()
    assert out[:3] == ["files: running (2025-11-25)", "  tools", "    files:echo  First line."]
    assert out[-7:] == [
        "  resources",
        "    file://files//a  The file",
        "  resource templates",
        "    file://files//{x}  \\x1b[31m[bold]",
        "  prompts",
        "    files:sum-up",
        "bad: failed: command not found: 'no-such-command-anywhere'; install it, or give its full path as `command`",
    ]
    assert are_gone(record)


def test_list_without_strict_is_fine_with_servers_that_fail(run: Run) -> None:
    assert run("list", "--no-strict", bad=MISSING).code == 0


def test_list_shows_the_others_when_a_variable_has_no_value(run: Run) -> None:
    for options, code in (((), 3), (("--no-strict",), 0)):
        ended = run("list", *options, good=lean(), bad=WITHOUT_VALUE)
        assert (ended.code, ended.err) == (code, "")
        assert "good: running" in ended.out
        assert f"\nbad: failed: {NOT_SET}" in ended.out


def test_list_waits_for_every_server_although_lists_do_not(run: Run, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("ready_wait = 0")
    ended = run("list", "--no-strict", "--settings", str(settings), a=lean(), b=lean())
    assert "a: running" in ended.out
    assert "b: running" in ended.out


def test_list_as_json_has_everything_that_a_client_is_told(run: Run) -> None:
    ended = run(
        "list",
        "--json",
        old=lean(instructions="Be brief. ü", prompts=[{"name": "p", "x-unknown": 1}]),
        new=lean(era="modern", resources=[{"uri": "a:b", "name": "b"}]),
        bad=MISSING,
    )
    assert ended.code == 3
    servers = json.loads(ended.out)["servers"]
    assert list(servers) == ["old", "new", "bad"]
    assert servers["old"] | {"tools": []} == {
        "state": "running",
        "protocolVersion": "2025-11-25",
        "error": None,
        "instructions": "Be brief. ü",
        "tools": [],
        "resources": [],
        "resourceTemplates": [],
        "prompts": [{"name": "old:p", "x-unknown": 1}],
    }
    assert servers["old"]["tools"][0]["name"] == "old:echo"
    assert "inputSchema" in servers["old"]["tools"][0]
    assert servers["new"]["protocolVersion"] == "2026-07-28"
    assert servers["new"]["resources"] == [{"uri": "a://new:/b", "name": "b"}]
    assert servers["bad"] == {
        "state": "failed",
        "protocolVersion": None,
        "error": "command not found: 'no-such-command-anywhere'; install it, or give its full path as `command`",
        "instructions": None,
        "tools": [],
        "resources": [],
        "resourceTemplates": [],
        "prompts": [],
    }


def test_list_as_json_gives_a_name_to_the_server_that_a_call_would_reach(run: Run) -> None:
    ended = run("list", "--json", "--no-prefix", "--no-strict", a=lean(), b=lean(tool_names=["more"]))
    servers = json.loads(ended.out)["servers"]
    assert servers["a"]["tools"][0]["name"] == "echo"
    assert [tool["name"] for tool in servers["b"]["tools"]] == ["more"]


def test_list_tells_what_a_search_would_save_of_a_long_list(run: Run) -> None:
    ended = run("list", files=lean(tools=100))
    sizes = json.loads(run("list", "--json", "--tool-search", files=lean(tools=100)).out)["toolList"]
    assert sizes["bytes"] > 4000 > sizes["bytesWithToolSearch"] > 0
    assert f"The list of all tools: {sizes['bytes']} bytes, about {sizes['bytes'] // 4} tokens; " in ended.err
    assert f"with --tool-search, clients see {sizes['bytesWithToolSearch']} bytes" in ended.err
    assert "Tokens are an estimate: 4 bytes each." in ended.err


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_list_draws_a_tree(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    assert run("list", files=lean(tool_names=["[red]"]), bad=MISSING).code == 3
    assert "── " in screen.getvalue()
    assert "files:[red]" in screen.getvalue()
    assert "bad: failed" in screen.getvalue()


# call


def test_call_types_the_arguments_by_the_tools_schema_and_prints_the_text(run: Run, tmp_path: Path) -> None:
    record = tmp_path / "pids"
    files = lean(record=str(record), tool_extra={"inputSchema": SCHEMA})
    ended = run("call", "files:echo", "limit=5", "tags=a", "tags=1", "path=7", "other=[1]", files=files)
    assert (ended.code, ended.err) == (0, "")
    answer = json.loads(ended.out)
    assert answer["arguments"] == {"limit": 5, "tags": ["a", "1"], "path": "7", "other": [1]}
    assert are_gone(record)


@pytest.mark.parametrize("name", ["my.git:echo", "my.git__echo", "my.git.echo", "my.git_echo"])
def test_call_accepts_every_spelling_and_starts_no_other_server(name: str, run: Run, tmp_path: Path) -> None:
    others = {key: lean(record=str(tmp_path / "pids")) for key in ("files", "my.gi", "my.git2")}
    ended = run("call", name, **others, **{"my.git": lean(name="it")})
    assert json.loads(ended.out)["server"] == "it"
    assert not (tmp_path / "pids").exists()


def test_call_starts_each_server_whose_key_fits(run: Run, tmp_path: Path) -> None:
    shorter = lean(record=str(tmp_path / "pids"), name="shorter")
    ended = run("call", "my.git.echo", my=shorter, **{"my.git": lean(name="it")})
    assert json.loads(ended.out)["server"] == "it"
    assert are_gone(tmp_path / "pids")
    assert json.loads(run("call", "my:echo", my=shorter, **{"my.git": MISSING}).out)["server"] == "shorter"


def test_call_accepts_a_name_in_which_the_key_was_shortened(run: Run) -> None:
    key = "k" * 70
    changed = run("check", "--all", "--connect", **{key: lean()}).out.partition("changed:\n")[2].splitlines()
    name = changed[1].split()[0]
    assert len(name) == 64
    ended = run("call", name, **{key: lean(name="it"), "other": MISSING})
    assert ended.code == 0
    assert json.loads(ended.out)["server"] == "it"


def test_call_without_prefixes_starts_all_servers_because_any_may_have_the_tool(run: Run) -> None:
    ended = run("call", "--no-prefix", "more", a=lean(capabilities={"prompts": {}}), b=lean(tool_names=["more"]))
    assert ended.code == 0
    assert json.loads(ended.out)["tool"] == "more"


@pytest.mark.parametrize("source", ["text", "file", "stdin"])
def test_call_takes_all_arguments_as_one_json_object(
    source: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '{"a": {"b": [null]}}'
    (tmp_path / "args.json").write_text(text)
    monkeypatch.setattr(sys, "stdin", StringIO(text))
    given = {"text": text, "file": f"@{tmp_path}/args.json", "stdin": "-"}[source]
    ended = run("call", "files:echo", "--args", given, files=lean())
    assert json.loads(ended.out)["arguments"] == {"a": {"b": [None]}}


def test_call_as_json_prints_the_whole_result(run: Run) -> None:
    result = {"content": [], "structuredContent": {"ü": 1}, "x-unknown": {"kept": True}, "_meta": {"a": 1}}
    ended = run("call", "--json", "a:raw", "--args", json.dumps(result), a=lean())
    assert ended.code == 0
    assert json.loads(ended.out) == result
    assert "ü" in ended.out


def test_call_prints_other_blocks_in_one_line_each_and_nothing_for_nothing(run: Run) -> None:
    block = {"type": "image", "mimeType": "image/png", "data": "eHh4eA=="}
    ended = run("call", "a:raw", "--args", json.dumps({"content": [block]}), a=lean())
    assert ended.out == "[image image/png, 4 bytes]\n"
    assert run("call", "a:raw", "--args", '{"content": []}', a=lean()) == (0, "", "")


def test_call_ends_with_code_1_when_the_tool_reports_an_error(run: Run) -> None:
    assert run("call", "a:fail", a=lean()) == (1, "it failed\n", "")


def test_call_ends_with_code_1_and_the_message_of_a_json_rpc_error(run: Run) -> None:
    assert run("call", "a:error", a=lean()) == (1, "", "error -32099: told to\n")


def test_call_of_a_tool_that_is_not_there_suggests_others(run: Run) -> None:
    ended = run("call", "a:ecko", "x=1", a=lean())
    assert ended == (1, "", "error -32602: Tool not found: a:ecko\n  Did you mean: a:echo?\n")


def test_call_of_a_tool_that_answers_nonsense_says_so(run: Run) -> None:
    ended = run("call", "a:raw", "--args", '{"content": 5}', a=lean())
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("the server answered a:raw with no valid tool result (")


def test_call_of_a_server_that_dies_meanwhile_says_so_once(run: Run) -> None:
    ended = run("call", "a:leave", "code=7", a=lean())
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.count("exited with code 7") == 1


def test_call_needs_the_variables_of_its_own_server_alone(run: Run) -> None:
    assert run("call", "good:echo", good=lean(), bad=WITHOUT_VALUE).code == 0
    ended = run("call", "bad:echo", good=lean(), bad=WITHOUT_VALUE)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.count(NOT_SET) == 1


def test_call_of_a_server_that_does_not_start_ends_with_code_3_and_says_why_once(run: Run) -> None:
    ended = run("call", "bad:x", bad=MISSING)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.count("command not found") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["files:echo", "limit=abc"], 'argument limit: "abc" is not an integer'),
        (["files:echo", "limit"], "argument 'limit': write it as key=value"),
        (["files:echo", "a=1", "--args", "{}"], "give the arguments as key=value or with --args, not both"),
        (["files:echo", "--args", "[]"], "--args must be a JSON object, with the tool's arguments by name"),
        (["files:echo", "--args", "@/no/such"], "/no/such cannot be read: No such file or directory"),
        (["files:echo", "--args", f"@{sys.executable}"], f"{sys.executable} cannot be read: it is not UTF-8"),
        (
            ["fiels:echo"],
            "the name 'fiels:echo' begins with the key of no server in the config\nDid you mean: files?",
        ),
        (
            ["files"],
            "'files' is a server: name one of its tools, as files:TOOL. `fastmcp-aggregator list CONFIG` shows them",
        ),
        (
            ["echo"],
            "the name 'echo' begins with the key of no server in the config\nThe servers are: files, git.",
        ),
    ],
)
def test_call_with_bad_arguments_ends_with_code_2(arguments: list[str], message: str, run: Run) -> None:
    ended = run("call", *arguments, files=lean(tool_extra={"inputSchema": SCHEMA}), git=MISSING)
    assert ended == (2, "", message + "\n")


class Stderr(StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_call_shows_what_it_does_on_stderr(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.spinner import Spinner

    seen: list[str] = []
    monkeypatch.setattr(sys, "stderr", Stderr())
    monkeypatch.setattr(Spinner, "update", lambda self, *, text: seen.append(str(text)))
    ended = run("call", "a:progress", a=lean())
    assert ended.code == 0
    assert seen[:2] == ["1 of 1 server ready", "calling a:progress"]
    assert seen[2:] == [f"calling a:progress: {step} of 3, step {step}" for step in (1, 2, 3)]
    assert json.loads(ended.out)["token"] is not None


# The end of a command that is interrupted


@asynccontextmanager
async def begun(folder: Path, command: str, *arguments: str, **servers: dict[str, Any]) -> AsyncIterator[ServerProcess]:
    path = folder / "config.json"
    path.write_text(json.dumps(config(**servers)))
    line = [sys.executable, "-m", "fastmcp_aggregator", command, str(path), *arguments]
    async with running(*line, handshake=False) as process:
        yield process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_call_that_is_interrupted_is_cancelled_closes_its_server_and_ends_as_in_a_shell(
    number: signal.Signals, tmp_path: Path
) -> None:
    record = tmp_path / "pids"
    async with begun(tmp_path, "call", "a:hold", a=lean(record=str(record))) as process:
        await process.said("[a] holding")
        process.process.send_signal(number)
        assert await process.wait() == 128 + number
        assert process.stderr == b"[a] holding\n[a] cancelled\n"
        assert process.client.lines == []
    await until(lambda: are_gone(record))


@pytest.mark.parametrize("command", [["list"], ["check", "--connect"]], ids=" ".join)
async def test_ctrl_c_while_a_server_starts_ends_a_command_with_code_130(command: list[str], tmp_path: Path) -> None:
    record = tmp_path / "pids"
    slow = lean(record=str(record), wait_for_file=str(tmp_path / "never"), stderr=["starting"])
    async with begun(tmp_path, *command, slow=slow) as process:
        await process.said("[slow] starting")
        process.process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert process.stderr == b"[slow] starting\n"
    await until(lambda: are_gone(record))


STUBBORN = """
import asyncio, os, signal, time
from fastmcp_aggregator.cli.running.starting import run_command

async def work():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        {blocks}
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(600)

run_command(work())
"""


@pytest.mark.parametrize("blocks", ["pass", "time.sleep(600)"])
def test_ctrl_c_ends_a_command_at_once_that_does_not_close_or_whose_event_loop_is_blocked(blocks: str) -> None:
    program = STUBBORN.format(blocks=blocks)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


async def test_work_that_is_interrupted_is_cancelled_and_awaited() -> None:
    steps: list[str] = []

    async def work() -> int:
        steps.append("begun")
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("closed")
        return 0

    assert await interruptible(work()) == 143
    assert steps == ["begun", "closed"]


def test_a_call_of_a_server_that_fails_gives_no_advice_on_serving(run: Run) -> None:
    ended = run("call", "bad:x", bad=MISSING)
    assert ended.code == 3
    assert "command not found" in ended.err
    assert "no-strict" not in ended.err
