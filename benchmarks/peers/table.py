"""The aggregators that are measured: what installs each, what starts it, its config, and how it joins names."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Entries = Mapping[str, Mapping[str, Any]]
"""Servers by name, as in an `mcpServers` file."""

STDIO, HTTP, SSE = "stdio", "HTTP", "SSE"
OURS = "fastmcp-aggregator"


@dataclass(frozen=True)
class Place:
    """Where a peer runs: its installation, a home of its own with the config in it, and a free port."""

    installed: Path
    home: Path
    config: Path
    port: int

    def python(self, program: str) -> str:
        """A program of its virtual environment."""
        return str(self.installed / "python" / "bin" / program)

    def node(self, program: str) -> str:
        """A program of its npm packages."""
        return str(self.installed / "node" / "node_modules" / ".bin" / program)


def as_it_is(entries: Entries) -> dict[str, Any]:
    """The `mcpServers` file itself."""
    return {"mcpServers": entries}


def inside_a_client(entries: Entries) -> dict[str, Any]:
    """The servers within the entry of the gateway, in the file of a client."""
    return {"mcpServers": {"mcp-gateway": {"command": "mcp-gateway", "servers": entries}}}


def with_writing(entries: Entries) -> dict[str, Any]:
    """The file with tools that may change something, which are left out by default."""
    return {"mcpServers": entries, "bridge": {"read_only_mode": False}}


def tagged(entries: Entries) -> dict[str, Any]:
    """A register of servers, in which each has the tag of the profile that is run."""
    return {name: {"name": name, "profile_tags": [PROFILE], **entry} for name, entry in entries.items()}


def with_prefixes(entries: Entries) -> dict[str, Any]:
    """A register of servers, in which each says where it is from and its prefix."""
    return {"servers": {name: {"source": "https://example.com", "prefix": name, **e} for name, e in entries.items()}}


PROFILE = "all"


@dataclass(frozen=True)
class Peer:
    """One of them. `joined` is what a tool is called, `path` the MCP endpoint, `python` and `node` are its pins."""

    name: str
    front: str
    command: Callable[[Place], Sequence[str]]
    joined: str = "{server}__{tool}"
    config: Callable[[Entries], Mapping[str, Any]] = as_it_is
    config_file: str = "config.json"
    is_bare_alone: bool = False
    """Whether the tools of a server that is alone keep their names."""
    path: str = "/mcp"
    python: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    needs_python: tuple[int, int] = (3, 11)
    """The oldest that it runs on."""
    package: str = ""
    """Whose version is shown."""

    @property
    def label(self) -> str:
        """What a row is called."""
        return f"{self.name}, {self.front}"

    @property
    def slug(self) -> str:
        """The name of its folders."""
        return "-".join(re.findall(r"\w+", self.name.lower()))

    @property
    def is_ours(self) -> bool:
        """Whether it is the program of this repository."""
        return self.name == OURS

    def tool(self, server: str, tool: str) -> str:
        """What it calls a tool of a server."""
        return self.joined.format(server=server, tool=tool)

    def tool_of(self, servers: int, server: str, tool: str) -> str:
        """The same, with so many servers."""
        return tool if servers == 1 and self.is_bare_alone else self.tool(server, tool)


def ours(place: Place) -> list[str]:
    """This program, on stdio, as `install` writes it into the configs of clients, without the shared hub."""
    return [sys.executable, "-m", "fastmcp_aggregator", str(place.config), "--no-strict"]


def mounted(front: str) -> Callable[[Place], list[str]]:
    """FastMCP with a proxy mounted for each server, as its documentation has it, over clients that stay connected."""
    script = str(Path(__file__).with_name("mounted.py"))
    return lambda place: [sys.executable, script, str(place.config), front, str(place.port)]


FASTMCP = {"joined": "{server}_{tool}", "package": "fastmcp"}
PEERS = [
    Peer(OURS, STDIO, ours, "{server}:{tool}"),
    Peer(OURS, HTTP, lambda at: [*ours(at), "--transport", "http", "--port", str(at.port)], "{server}:{tool}"),
    Peer(
        "mcp-hub",
        SSE,
        lambda at: [at.node("mcp-hub"), "--port", str(at.port), "--config", str(at.config)],
        node=("mcp-hub@4.2.1",),
    ),
    Peer(
        "lasso mcp-gateway",
        STDIO,
        lambda at: [at.python("mcp-gateway"), "--mcp-json-path", str(at.config)],
        "{server}_{tool}",
        inside_a_client,
        python=("mcp-gateway==1.2.1", "mcp[cli]<2"),
    ),
    Peer(
        "foxxy-bridge",
        SSE,
        lambda at: [
            *(at.python("python"), "-m", "mcp_foxxy_bridge", "--bridge-config", str(at.config)),
            *("--config-dir", str(at.home), "--port", str(at.port)),
        ],
        config=with_writing,
        path="/sse",
        python=("mcp-foxxy-bridge==1.7.1",),
    ),
    Peer("FastMCP, mounted proxies", STDIO, mounted("stdio"), **FASTMCP),
    Peer("FastMCP, mounted proxies", HTTP, mounted("http"), **FASTMCP),
    Peer(
        "fastmcp run",
        STDIO,
        lambda at: [sys.executable, "-m", "fastmcp.cli", "run", str(at.config), "--no-banner"],
        is_bare_alone=True,
        **FASTMCP,
    ),
    Peer(
        "mcpm",
        STDIO,
        lambda at: [at.python("mcpm"), "profile", "run", PROFILE],
        "{server}_{tool}",
        tagged,
        ".config/mcpm/servers.json",
        is_bare_alone=True,
        python=("mcpm==2.15.0",),
    ),
    # Of these, the commands are those of their documentation; where they cannot be installed, they have not been run.
    Peer(
        "magg",
        STDIO,
        lambda at: [at.python("magg"), "serve"],
        "{server}_{tool}",
        with_prefixes,
        ".magg/config.json",
        python=("magg==1.3.0",),
        needs_python=(3, 12),
    ),
    Peer(
        "mcp-combiner",
        HTTP,
        lambda at: [at.python("mcp-combiner"), "--mcp", "--config", str(at.config), "--port", str(at.port)],
        "{server}_{tool}",
        python=("mcp-combiner==0.17.5",),
        needs_python=(3, 12),
    ),
    Peer(
        "1MCP",
        HTTP,
        lambda at: [at.node("1mcp"), "serve", "--config", str(at.config), "--port", str(at.port)],
        "{server}_1mcp_{tool}",
        node=("@1mcp/agent@0.26.0",),
    ),
]
