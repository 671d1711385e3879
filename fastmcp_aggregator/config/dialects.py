"""Dialects of other MCP clients: their spellings of a transport, and their formats that are not ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import SequenceMatcher, get_close_matches
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

_NOT_IMPORTED = {"opencode"}
IMPORT = "fastmcp-aggregator import FILE --output mcp.json"

_NO_TARGET = {"args", "env", "cwd", "type", "headers"}

# Other clients' names for `url`.
_FOREIGN_URL_KEYS = {"serverUrl": "Windsurf", "httpUrl": "Gemini CLI"}

# `disabledTools` is a field of others, and `_args` or `args2` is one that somebody has put out of use.
_ONE_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_LIKE_ENOUGH = 0.75


def transport_of(spelling: str) -> Transport | None:
    """Return the transport that a `type` or `transport` means; None if it is unknown."""
    return _TRANSPORTS.get(spelling.lower().replace("-", "").replace("_", ""))


def missing_servers_message(document: Mapping[str, Any]) -> str:
    for key, client in _FOREIGN_ROOT_KEYS.items():
        if key in document:
            told = f"has `{key}`, which is the format of {client}; the key must be `mcpServers`"
            return told if client in _NOT_IMPORTED else f"{told}. To translate it: {IMPORT}"
    if any(isinstance(value, Mapping) and {"command", "url"} & value.keys() for value in document.values()):
        return "has servers at its root; put them into an object under the key `mcpServers`"
    for key in document:
        if SequenceMatcher(None, str(key)[:64].lower(), "mcpservers").ratio() >= _LIKE_ENOUGH:
            return f"has `{key}`; did you mean `mcpServers`?"
    return 'has no `mcpServers`; write {"mcpServers": {"name": {"command": "…"}}}'


def missing_target_message(entry: Mapping[str, Any]) -> str:
    """Explain what is wrong with a server with neither `command` nor `url`."""
    for key, client in _FOREIGN_URL_KEYS.items():
        if key in entry:
            return f"has `{key}`, which is the spelling of {client}; the key must be `url`"
    for key in entry:
        if key not in _NO_TARGET and (target := meant_field(key, ("command", "url"))):
            return f"has `{key}`; did you mean `{target}`?"
    return "has neither `command` nor `url`; give the command that starts the server, or the URL where it runs"


def misspelt_message(name: str, meant: str) -> str:
    """Explain what comes of a field that `meant_field` knows."""
    return f"has `{name}`, which is ignored; did you mean `{meant}`?"


def meant_field(name: object, fields: Collection[str]) -> str | None:
    """The one of the fields that was misspelt as `name`; None if it is something else."""
    word = str(name)[:64].strip()
    if not _ONE_WORD.fullmatch(word):
        return None
    letters = word.lower()
    swapped = [field for field in fields if sorted(field) == sorted(letters)]
    similar = swapped or get_close_matches(letters, fields, 1, _LIKE_ENOUGH)
    return similar[0] if similar else None
