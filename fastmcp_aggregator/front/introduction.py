"""The introduction in a handshake: capabilities and instructions, from what is known of the servers. Pure.

The capabilities are those of the servers together. As long as a server has never been up, it is unknown what it will
offer, and a client reads the capabilities once: then everything is declared that could come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastmcp_aggregator.catalogue.snapshot import Catalogue
from fastmcp_aggregator.extensions import table as extensions
from fastmcp_aggregator.protocol.client_capabilities import Capabilities
from fastmcp_aggregator.protocol.methods import LIST_CHANGED, capabilities_of

_RELAYED: Capabilities = {**capabilities_of("server"), "extensions": extensions.ALL}
"""The capabilities that can be passed on, and so may turn out to be offered."""
_KEPT = frozenset({*capabilities_of("server"), "experimental"})
"""Tasks of 2025-11-25 are not."""


class Introduced(NamedTuple):
    """A server, what its entry says of it, and what it is known to offer."""

    key: str
    description: str | None
    catalogue: Catalogue | None


def capabilities_together(servers: Sequence[Introduced], own: Capabilities) -> dict[str, Any]:
    """Everything that at least one server can do, and not more; with `own`, what we can do besides."""
    known: list[Capabilities] = [each.catalogue.capabilities for each in servers if each.catalogue is not None]
    if len(known) < len(servers):
        known.append(_RELAYED)
    return _union([*known, own])


def instructions_together(servers: Sequence[Introduced]) -> str:
    """One line for each server, then each server's own instructions under its key, as far as they are known now."""
    if not servers:
        return "This server combines several MCP servers; none is configured."
    lines = [
        "This server combines several MCP servers. A tool, prompt or resource belongs to the server whose key its "
        "name begins with:",
        *(f"- {each.key}: {each.description}" if each.description else f"- {each.key}" for each in servers),
    ]
    for each in servers:
        if each.catalogue is not None and each.catalogue.instructions:
            lines += ["", f"## {each.key}", each.catalogue.instructions]
    return "\n".join(lines)


def _union(of_servers: Sequence[Capabilities]) -> dict[str, Any]:
    """The capabilities together; that a list changed, we tell for every server."""
    together: dict[str, Any] = {}
    for capabilities in of_servers:
        for name, value in capabilities.items():
            if name in _KEPT and isinstance(value, Mapping):
                together[name] = _merged(together.get(name, {}), value)
    together["extensions"] = extensions.merged(extensions.relayed(each) for each in of_servers)
    for name in LIST_CHANGED:
        if name in together:
            together[name]["listChanged"] = True
    return together


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A flag is set if either sets it; of other values the first stays."""
    merged = dict(one)
    for name, value in other.items():
        merged[name] = merged.get(name) or value
    return merged
