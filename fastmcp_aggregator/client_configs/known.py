"""The config files of known clients: where each is on each system, its servers' key, and what `$` means in a value.

Which names a client accepts is another matter: `naming/rules.py`.

Sources, read in November 2026:

- Claude Desktop: modelcontextprotocol.io/docs/develop/connect-local-servers; `fastmcp.cli.install.claude_desktop`
- Claude Code: code.claude.com/docs/en/mcp (scopes, `.mcp.json`, `${VAR:-default}`); `fastmcp.cli.discovery`
- Cursor: cursor.com/docs/context/mcp (`${env:NAME}`, `${userHome}`, `${workspaceFolder}`)
- VS Code: code.visualstudio.com/docs/agents/reference/mcp-configuration (`servers`, `inputs`)
- Windsurf: docs.windsurf.com/windsurf/cascade/mcp (`serverUrl`, `${env:NAME}`)
- Zed: zed.dev/docs/ai/mcp, zed.dev/docs/configuring-zed (`context_servers`)
- Cline: docs.cline.bot/mcp/configuring-mcp-servers (`timeout` in seconds; the extension's and the CLI's file)
- Gemini CLI: geminicli.com/docs/tools/mcp-server (`httpUrl`; there `url` means SSE)
- Codex: developers.openai.com/codex/mcp (`[mcp_servers.NAME]`, `CODEX_HOME`)
- What they refuse in JSON: Claude Desktop anthropics/claude-code#81355 (`JSON.parse`, which takes no byte order mark);
  Claude Code #9906 (comments and commas; a byte order mark it takes by now); Cline `McpHub.ts` (`JSON.parse`).

FastMCP's discovery knows some of these files as well; it parses them into models that drop what they do not know, and
has no way to change one, so it serves as the yardstick of the tests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fastmcp_aggregator.config.jsonc import Extra

Format = Literal["json", "toml"]
Variables = Literal["braced", "bare", "env", "input", "predefined", "doubled"]
"""`${NAME}`, `$NAME`, `${env:NAME}`, `${input:ID}`, names such as `${userHome}`, and `$$` for `$`."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that the paths of config files depend on. `system` is `sys.platform`."""

    home: Path
    system: str
    environ: Mapping[str, str] = field(repr=False)
    project: Path

    @property
    def config_home(self) -> Path:
        """The folder of the config files of programs on this system."""
        if self.system == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        return self.xdg_home

    @property
    def xdg_home(self) -> Path:
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")


def this_machine() -> Machine:
    return Machine(Path.home(), sys.platform, os.environ, Path.cwd())


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How a client keeps its servers. `user_files` has the user's own first; `project_files` are relative to a project.

    `variables` is what it replaces in a value; `timeout_unit` how many milliseconds its `timeout` counts by, if it has
    one; `plain_url` what a `url` without a type means to it; `advice` what a person does for a change to count, and
    `before` what before it is made; `entry` what an entry for it has besides; `refuses` what of JSON as people write it
    makes a file one that it cannot read.
    """

    id: str
    label: str
    user_files: Callable[[Machine], list[Path]]
    project_files: tuple[str, ...] = ()
    servers_key: str = "mcpServers"
    format: Format = "json"
    variables: frozenset[Variables] = frozenset()
    timeout_unit: int = 1
    plain_url: Literal["http", "sse"] | None = None
    advice: str = ""
    before: str = ""
    entry: Mapping[str, Any] = field(default_factory=dict)
    refuses: frozenset[Extra] = frozenset()

    def is_of_project(self, path: Path, machine: Machine) -> bool:
        """True if this client looks there for the config that all who work on a project share."""
        ends = [Path(file).parts for file in self.project_files]
        return path not in self.user_files(machine) and any(path.parts[-len(end) :] == end for end in ends)


def _claude_code(machine: Machine) -> list[Path]:
    return [Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"]


def _zed(machine: Machine) -> list[Path]:
    if machine.system == "win32":
        return [machine.config_home / "Zed" / "settings.json"]
    return [(machine.home / ".config" if machine.system == "darwin" else machine.xdg_home) / "zed" / "settings.json"]


def _cline(machine: Machine) -> list[Path]:
    name = "cline_mcp_settings.json"
    storage = machine.config_home / "Code" / "User" / "globalStorage" / "saoudrizwan.claude-dev"
    cli = machine.environ.get("CLINE_MCP_SETTINGS_PATH") or machine.home / ".cline" / "data" / "settings" / name
    return [storage / "settings" / name, Path(cli)]


def _codex(machine: Machine) -> list[Path]:
    return [Path(machine.environ.get("CODEX_HOME") or machine.home / ".codex") / "config.toml"]


_RESTART = "Quit it and start it again."
_STRICT: frozenset[Extra] = frozenset({"a byte order mark", "a comment", "a comma after the last item"})

CLIENT_CONFIGS: dict[str, ClientConfig] = {
    client.id: client
    for client in (
        ClientConfig(
            "claude-desktop",
            "Claude Desktop",
            lambda machine: [machine.config_home / "Claude" / "claude_desktop_config.json"],
            advice=_RESTART,
            refuses=_STRICT,
        ),
        ClientConfig(
            "claude-code",
            "Claude Code",
            _claude_code,
            (".mcp.json",),
            variables=frozenset({"braced"}),
            entry={"type": "stdio"},
            before="It writes this file itself while it runs: close it first.",
            advice=_RESTART,
            refuses=_STRICT - {"a byte order mark"},
        ),
        ClientConfig(
            "cursor",
            "Cursor",
            lambda machine: [machine.home / ".cursor" / "mcp.json"],
            (".cursor/mcp.json",),
            variables=frozenset({"env", "predefined"}),
            advice="Switch the server on under Settings, MCP.",
        ),
        ClientConfig(
            "vscode",
            "VS Code",
            lambda machine: [machine.config_home / "Code" / "User" / "mcp.json"],
            (".vscode/mcp.json",),
            servers_key="servers",
            variables=frozenset({"env", "input", "predefined"}),
            entry={"type": "stdio"},
            advice="Start the server with the command `MCP: List Servers`.",
        ),
        ClientConfig(
            "windsurf",
            "Windsurf",
            lambda machine: [machine.home / ".codeium" / "windsurf" / "mcp_config.json"],
            variables=frozenset({"env"}),
            advice="Press Refresh in the MCP panel of Cascade.",
        ),
        ClientConfig(
            "zed",
            "Zed",
            _zed,
            (".zed/settings.json",),
            servers_key="context_servers",
            advice="Zed takes it up at once.",
        ),
        ClientConfig(
            "cline",
            "Cline",
            _cline,
            variables=frozenset({"env"}),
            timeout_unit=1000,
            plain_url="sse",
            advice="Cline takes it up at once.",
            refuses=_STRICT,
        ),
        ClientConfig(
            "gemini-cli",
            "Gemini CLI",
            lambda machine: [machine.home / ".gemini" / "settings.json"],
            (".gemini/settings.json",),
            variables=frozenset({"braced", "bare"}),
            plain_url="sse",
            advice=_RESTART,
        ),
        ClientConfig(
            "codex",
            "Codex",
            _codex,
            (".codex/config.toml",),
            servers_key="mcp_servers",
            format="toml",
            entry={"startup_timeout_sec": 60},  # 10 otherwise, in which a first `uvx` may still download
            advice=_RESTART,
        ),
    )
}
"""Clients by the id used on the command line."""

STANDARD = ClientConfig("file", "file", lambda _: [], variables=frozenset({"braced", "bare", "env", "doubled"}))
"""A file that belongs to no client: the standard format, with the variables that the aggregator knows."""
