"""The servers that these tests run, the files that they work on, and how each is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from install_servers import clients_folder, default_folder, is_installed, node_script, python_bin

FOLDER = default_folder()

CLIENTS = clients_folder(FOLDER)

requires_servers = pytest.mark.skipif(
    not is_installed(FOLDER),
    reason=f"the servers are not installed in {FOLDER}: run python tests/real/install_servers.py",
)

LISTS = {
    "tools/list": ("tools", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "prompts/list": ("prompts", "name"),
}

MODERN_SERVERS = frozenset({"time", "git"})
"""The server keys of those that speak 2026-07-28."""
_LOADED_DICE = "--import data:text/javascript,let%20n=0;Math.random=()=>n++%258/8"
"""For node: `Math.random` gives 0, 1/8, 2/8 … 7/8 and so on, so that two servers choose the same."""
_SAFE_VARIABLES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")


@dataclass(frozen=True)
class Place:
    """The files that the servers work on, under one folder."""

    folder: Path

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def other_files(self) -> Path:
        return self.folder / "other files"

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    def filled(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments with the real paths where they have `FILES` or `REPOSITORY`."""
        text = json.dumps(arguments)
        text = text.replace("FILES", str(self.files)).replace("REPOSITORY", str(self.repository))
        return json.loads(text)


def make_place(folder: Path) -> Place:
    """Two folders of files, and a git repository whose commit is always the same."""
    place = Place(folder.resolve())
    (place.files / "sub").mkdir(parents=True)
    (place.files / "hello.txt").write_text("Hello, wörld\n", encoding="utf-8")
    (place.files / "sub" / "notes.md").write_text("# Notes\n")
    place.other_files.mkdir()
    (place.other_files / "hello.txt").write_text("Hello from the other folder\n")
    _make_repository(place.repository)
    return place


def _make_repository(folder: Path) -> None:
    folder.mkdir()
    moment = "2026-01-02T03:04:05+00:00"
    identity = {"NAME": "A. Author", "EMAIL": "author@example.org", "DATE": moment}
    env = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in identity.items()}

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **env}, check=True)

    git("init", "--quiet", "--initial-branch", "main")
    (folder / "poem.txt").write_text("one\n")
    git("add", "poem.txt")
    git("-c", "commit.gpgsign=false", "commit", "--quiet", "-m", "The first line")
    (folder / "poem.txt").write_text("one\ntwo\n")


def server_entries(place: Place, memories: Path) -> dict[str, dict[str, Any]]:
    """The `mcpServers` entries of all servers, two of them twice; what they remember goes into `memories`."""
    return {
        "everything": _node("everything", NODE_OPTIONS=_LOADED_DICE),
        "time": _python("mcp-server-time", "--local-timezone", "UTC"),
        "git": _python("mcp-server-git", "--repository", str(place.repository)),
        "filesystem": _node("filesystem", str(place.files)),
        "filesystem-other": _node("filesystem", str(place.other_files)),
        "memory": _node("memory", MEMORY_FILE_PATH=str(memories / "memory.jsonl")),
        "memory-other": _node("memory", MEMORY_FILE_PATH=str(memories / "memory-other.jsonl")),
        "sequential-thinking": _node("sequential-thinking"),
    }


def _node(name: str, *arguments: str, **env: str) -> dict[str, Any]:
    script = node_script(FOLDER, f"@modelcontextprotocol/server-{name}")
    return {"command": "node", "args": [str(script), *arguments], "env": env}


def _python(name: str, *arguments: str) -> dict[str, Any]:
    return {"command": str(python_bin(FOLDER) / name), "args": list(arguments)}


def direct_command(entry: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment with which a client starts this server itself."""
    return [entry["command"], *entry["args"]], {**safe_environment(), **entry.get("env", {})}


def aggregator_command(config: Path) -> list[str]:
    """The command line of an aggregator that serves this config on stdio."""
    return [sys.executable, "-m", "fastmcp_aggregator", str(config)]


def safe_environment() -> dict[str, str]:
    """The variables that MCP clients pass on to a server."""
    return {name: os.environ[name] for name in _SAFE_VARIABLES if name in os.environ}
