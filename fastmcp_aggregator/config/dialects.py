"""Dialects of other MCP clients: their spellings of a transport, and their formats that are not ours."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

Transport = Literal["stdio", "http", "sse"]

# Compared without case, dashes and underscores: streamable-http, streamableHttp and streamable_http are one.
_TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "sse": "sse",
    "http": "http",
    "streamablehttp": "http",
    "streaminghttp": "http",
    "streaming": "http",
}

# The root key under which another client's file has its servers, and that client.
_FOREIGN_ROOT_KEYS = {
    "servers": "VS Code",
    "context_servers": "Zed",
    "mcp": "opencode",
    "mcp_servers": "Codex",
}

_NO_TARGET = {"args", "env", "cwd", "type", "headers"}

# What another client calls `url`, and that client.
_FOREIGN_URL_KEYS = {"serverUrl": "Windsurf", "httpUrl": "Gemini CLI"}


def transport_of(spelling: str) -> Transport | None:
    """Return the transport that a `type` or `transport` means; None if it is unknown."""
    return _TRANSPORTS.get(spelling.lower().replace("-", "").replace("_", ""))


def missing_servers_message(document: Mapping[str, Any]) -> str:
    """Explain what is wrong with a document without `mcpServers`."""
    for key, client in _FOREIGN_ROOT_KEYS.items():
        if key in document:
            return f"has `{key}`, which is the format of {client}; the key must be `mcpServers`"
    if any(isinstance(value, Mapping) and {"command", "url"} & value.keys() for value in document.values()):
        return "has servers at its root; put them into an object under the key `mcpServers`"
    return 'has no `mcpServers`; write {"mcpServers": {"name": {"command": "…"}}}'


def missing_target_message(entry: Mapping[str, Any]) -> str:
    """Explain what is wrong with a server with neither `command` nor `url`."""
    for key, client in _FOREIGN_URL_KEYS.items():
        if key in entry:
            return f"has `{key}`, which is the spelling of {client}; the key must be `url`"
    for target in ("command", "url"):
        if similar := get_close_matches(target, [str(key)[:64] for key in entry if key not in _NO_TARGET], 1, 0.75):
            return f"has `{similar[0]}`; did you mean `{target}`?"
    return "has neither `command` nor `url`; give the command that starts the server, or the URL where it runs"
