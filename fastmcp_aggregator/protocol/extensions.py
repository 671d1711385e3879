"""The protocol extensions that are passed on, in both directions (SEP-2133). Pure.

An extension has methods, notifications, kinds of results or addresses of its own. Clients and servers declare it to
each other and then count on all of it, so it is declared to either side only if all of it passes through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Capabilities = Mapping[str, Any]

APPS = "io.modelcontextprotocol/ui"
"""MCP Apps (SEP-1865): tools that name a page, as a resource; it has no methods."""
RELAYED: Mapping[str, Mapping[str, Any]] = {APPS: {"mimeTypes": ["text/html;profile=mcp-app"]}}
"""Each with the settings that are declared to clients before a server has declared its own."""


def with_relayed(capabilities: Capabilities) -> dict[str, Any]:
    """A client's or server's capabilities, with those of its extensions that are passed on, and their settings."""
    declared = of(capabilities)
    kept = {name: declared[name] for name in RELAYED if isinstance(declared.get(name), Mapping)}
    rest = {name: value for name, value in capabilities.items() if name != "extensions"}
    return {**rest, "extensions": kept} if kept else rest


def withheld(capabilities: Capabilities) -> Iterator[str]:
    """The names of the extensions in a client's or server's capabilities that are not passed on."""
    return (name for name in of(capabilities) if name not in RELAYED)


def of(capabilities: Capabilities) -> Mapping[str, Any]:
    """The extensions that are declared, with their settings."""
    declared = capabilities.get("extensions")
    return declared if isinstance(declared, Mapping) else {}
