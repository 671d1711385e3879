"""`new`: what is written, what is told, and what is refused before anything is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_server_is_written_and_added_and_the_next_commands_are_told(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "my-server", "--config", "mcp.json", "--tool", "fetch_url", "fetch_text"]) == 0
    told = capfd.readouterr().out
    assert f"{folder}/my-server: the server my-server in python" in told
    assert "  cd my-server\n" in told
    assert f"fastmcp-aggregator call {folder}/mcp.json my-server:fetch_url text=" in told
    entry = json.loads((folder / "mcp.json").read_text())["mcpServers"]["my-server"]
    assert entry == {"command": f"{folder}/my-server/.venv/bin/my-server", "cwd": f"{folder}/my-server"}
    server = (folder / "my-server/src/my_server/server.py").read_text()
    assert "def fetch_url(" in server
    assert "def fetch_text(" in server


@pytest.mark.parametrize(
    ("has_uv", "steps"),
    [
        (True, ["uv sync", "uv run pytest"]),
        (False, ["python3 -m venv .venv", ".venv/bin/pip install --upgrade pip"]),
    ],
)
def test_the_next_commands_are_those_that_this_machine_has(
    has_uv: bool, steps: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/uv" if has_uv else None)
    monkeypatch.setattr("fastmcp_aggregator.cli.actions.new._make_repository", lambda _: None)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    assert main(["new", "a", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["nextSteps"][1:3] == steps


@pytest.mark.parametrize(
    ("source", "step"), [("{folder}", "uv add 'fastmcp-aggregator[service] @ {folder}'"), (None, "uv sync")]
)
def test_a_project_that_needs_this_package_gets_it_from_where_it_was_installed_from(
    source: str | None, step: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = None if source is None else json.dumps({"url": folder.as_uri(), "dir_info": {}})
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/uv")
    monkeypatch.setattr("fastmcp_aggregator.cli.actions.new._make_repository", lambda _: None)
    installed = SimpleNamespace(read_text=lambda _: told)
    monkeypatch.setattr("fastmcp_aggregator.cli.actions.new.distribution", lambda _: installed)
    monkeypatch.setenv("VIRTUAL_ENV", "/of/another")
    assert main(["new", "a", "--hub-grade", "--json"]) == 0
    steps = json.loads(capfd.readouterr().out)["nextSteps"]
    assert steps[1:3] == ["unset VIRTUAL_ENV", step.format(folder=folder)]


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_project_becomes_a_git_repository_unless_it_is_in_one(folder: Path) -> None:
    assert main(["new", "outer"]) == 0
    assert (folder / "outer" / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert main(["new", "inner", "--dir", "outer/servers/inner", "--hub-grade"]) == 0
    assert not (folder / "outer" / "servers" / "inner" / ".git").exists()
    assert "Service(" in (folder / "outer/servers/inner/src/inner/server.py").read_text()


def test_for_programs_everything_is_json(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["new", "a", "--lang", "typescript", "--resource", "r=x://{y}", "--prompt", "p", "--dir", "b c", "--json"]
    assert main(line) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["name"], told["language"], told["config"]) == ("a", "typescript", None)
    assert told["folder"] == f"{folder}/b c"
    assert told["nextSteps"][0] == "cd 'b c'"
    written = {path.relative_to(folder / "b c").as_posix() for path in (folder / "b c").rglob("*") if path.is_file()}
    written = {name for name in written if not name.startswith(".git/")}
    assert set(told["files"]) == written


def test_without_a_config_the_entry_is_shown_and_with_no_tool_the_last_step_is_a_list(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["new", "a"]) == 0
    assert 'For `mcpServers` in your config (--config FILE would have put it there): {"a": {' in capfd.readouterr().out
    assert main(["new", "b", "--prompt", "ask", "--config", "mcp.json"]) == 0
    assert "  fastmcp-aggregator list " in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["My-Server"], 2, "the server name 'My-Server' cannot be used"),
        (["a", "--tool", "Fetch"], 2, "the tool name 'Fetch' cannot be used"),
        (["a", "--tool", "x", "--prompt", "x"], 2, "the name 'x' is given more than once"),
        (["a", "--resource", "x"], 2, "write NAME=URI"),
        (["a", "--resource", "x=nothing"], 2, "is not one"),
        (["a", "--server-version", "one"], 2, "is not a semantic version"),
        (["a", "--config", "none/mcp.json"], 1, "there is no folder"),
        (["a", "--config", "taken.json"], 1, "has a server 'a' already"),
        (["a", "--config", "broken.json"], 2, "is not valid JSON"),
        (["a", "--dir", "full"], 1, "exists and has files"),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_written(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    (folder / "taken.json").write_text('{"mcpServers": {"a": {"command": "mine"}}}')
    (folder / "broken.json").write_text("{")
    (folder / "full").mkdir()
    (folder / "full" / "mine").write_text("mine")
    before = sorted(str(path) for path in folder.rglob("*"))
    assert main(["new", *arguments]) == code
    assert words in capfd.readouterr().err
    assert sorted(str(path) for path in folder.rglob("*")) == before


def test_a_folder_with_files_is_written_over_only_when_asked_and_the_config_waits_for_it(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "mine").write_text("mine")
    assert main(["new", "a", "--config", "mcp.json"]) == 1
    assert not (folder / "mcp.json").exists()
    assert main(["new", "a", "--config", "mcp.json", "--force"]) == 0
    assert (folder / "a" / "mine").read_text() == "mine"
    assert (folder / "a" / "pyproject.toml").exists()


def test_it_needs_neither_fastmcp_nor_a_template_library_to_refuse() -> None:
    program = (
        "import sys\n"
        "from fastmcp_aggregator.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print(code, sorted({'fastmcp', 'mcp', 'mcp_types', 'jinja2'} & sys.modules.keys()))\n"
    )
    line = [sys.executable, "-c", program, "new", "Wrong"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE, env={**os.environ})
    assert done.stdout == "2 []\n"
