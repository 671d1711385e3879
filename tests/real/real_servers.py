"""The servers that these tests run: how each is started, and how the aggregator is to show what it offers."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from install_servers import default_folder, is_installed, node_script, python_bin

FOLDER = default_folder()

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

_CLOCK = re.compile(r"\d{1,2}:\d{2}:\d{2} [AP]M")
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
        "everything": _node("everything"),
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


def public_address(server_key: str, uri: str) -> str:
    """A child's URI or URI template as the aggregator is to write it."""
    scheme, rest = uri.split("://", 1)
    return f"{scheme}://{server_key}/{rest}"


def public_component(server_key: str, id_field: str, component: dict[str, Any]) -> dict[str, Any]:
    """A child's component as the aggregator is to list it."""
    original = component[id_field]
    public = f"{server_key}:{original}" if id_field == "name" else public_address(server_key, original)
    return {**component, id_field: public}


def public_result(server_key: str, value: Any) -> Any:
    """A child's result as the aggregator is to pass it on: every `uri` in it can be read there."""
    if isinstance(value, list):
        return [public_result(server_key, item) for item in value]
    if not isinstance(value, dict):
        return value
    public = {key: public_result(server_key, item) for key, item in value.items()}
    if isinstance(value.get("uri"), str):
        public["uri"] = public_address(server_key, value["uri"])
    return public


def without_clock(text: str) -> str:
    """A text without the time of day that server-everything writes into it, plainly or in base64."""
    try:
        decoded = base64.b64decode(text, validate=True).decode("ascii")
    except ValueError:
        return _CLOCK.sub("<time>", text)
    return _CLOCK.sub("<time>", decoded) if _CLOCK.search(decoded) else text
