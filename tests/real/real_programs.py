"""Clients that others wrote, as programs, and what they connect to: servers themselves, or aggregators."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from install_servers import python_bin
from real_fronts import Entries
from real_servers import CLIENTS, aggregator_command, direct_command, safe_environment
from support.wire import LEGACY, MODERN, PATIENCE

SPOKEN = {
    "@modelcontextprotocol/sdk": [LEGACY],
    "@modelcontextprotocol/client": [LEGACY, MODERN],
    "@modelcontextprotocol/inspector": [LEGACY, MODERN],
    "langchain-mcp-adapters": [LEGACY],
    "openai-agents": [LEGACY],
}
"""The protocol versions that each package speaks with an aggregator."""
MODULES = CLIENTS / "node" / "node_modules"

_PROGRAMS = Path(__file__).parent / "clients"
NODE = MODULES / "node" / "bin" / "node"
INSPECTOR = MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"


def direct_server(entries: Entries) -> dict[str, Any]:
    """How a client starts server-everything itself."""
    (command, *arguments), env = direct_command(entries["everything"])
    return {"command": command, "args": arguments, "env": env}


def aggregating_server(entries: Entries, folder: Path, *options: str) -> dict[str, Any]:
    """How a client starts an aggregator of all servers."""
    config = folder / "config.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    command, *arguments = [*aggregator_command(config), *options]
    return {"command": command, "args": arguments, "env": safe_environment()}


def attaching_server(entries: Entries, folder: Path, *options: str) -> dict[str, Any]:
    """How a client starts a bridge to a hub of all servers."""
    settings = folder / "settings.toml"
    settings.write_text("hub_idle = 1\n")
    server = aggregating_server(entries, folder, "--settings", str(settings), *options)
    first = server["args"].index(str(folder / "config.json"))
    server["args"].insert(first, "attach")
    return server


async def run(program: str, home: Path, **told: Any) -> Any:
    """What one of the programs under `clients` prints."""
    file = _PROGRAMS / program
    interpreter = NODE if file.suffix == ".mjs" else python_bin(CLIENTS) / "python"
    return await printed(interpreter, file, json.dumps(told), home=home)


async def inspect(server: dict[str, Any], home: Path, version: str, method: str, *options: str) -> Any:
    """What the Inspector prints for one request."""
    target = [server["url"]] if "url" in server else [server["command"], *server["args"]]
    era = {LEGACY: "legacy", MODERN: "modern"}[version]
    how = ["--protocol-era", era, "--method", method, *options, "--format", "json", "--quiet"]
    return await printed(NODE, INSPECTOR, "--cli", *target, *how, home=home)


async def printed(*command: str | Path, home: Path) -> Any:
    env = {**safe_environment(), "HOME": str(home), "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, env=env, stdin=null, stdout=pipe, stderr=pipe)
    try:
        output, errors = await asyncio.wait_for(process.communicate(), 2 * PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, errors.decode()[-3000:]
    return json.loads(output)
