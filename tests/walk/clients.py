"""The files of nine clients, each in its own dialect, with the servers spread over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import tomlkit

from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS, Machine

Entries = Mapping[str, Mapping[str, Any]]


def write_files(machine: Machine, servers: Entries) -> None:
    """Give each client its share of the servers; VS Code and Codex name variables without a value."""
    keys = list(servers)
    for number, client in enumerate(CLIENT_CONFIGS.values()):
        share = {key: dict(servers[key]) for key in keys[number :: len(CLIENT_CONFIGS)]}
        path = client.user_files(machine)[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(client.id, client.servers_key, share), encoding="utf-8")


def _text(client: str, servers_key: str, share: dict[str, dict[str, Any]]) -> str:
    if client == "codex":
        return _codex(share)
    if client == "vscode":
        token = {"Authorization": "Bearer ${input:docs-token}"}
        share = {**share, "docs": {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": token}}
    if client == "zed":
        return f'// Zed\n{{\n  "theme": "One Dark",\n  "{servers_key}": {json.dumps(share, indent=2)},\n}}\n'
    others = {"numStartups": 7} if client == "claude-code" else {}
    return json.dumps({**others, servers_key: share}, indent="\t" if client == "vscode" else 2) + "\n"


def _codex(share: dict[str, dict[str, Any]]) -> str:
    document = tomlkit.document()
    document["model"] = "o3"
    servers = tomlkit.table(is_super_table=True)
    for key, entry in share.items():
        table = tomlkit.table()
        table.update({"command": entry["command"], "args": list(entry["args"]), "startup_timeout_sec": 60})
        if entry["env"]:
            table["env"] = dict(entry["env"])
        table["env_vars"] = ["WALK_OPTIONAL"]
        servers[key] = table
    document["mcp_servers"] = servers
    return tomlkit.dumps(document)
