"""The aggregated instructions: which servers are behind us, and what each says about itself."""

from __future__ import annotations

from collections.abc import Sequence

from fastmcp_aggregator.children.child import Child


def instructions(children: Sequence[Child]) -> str:
    """One line for each server, then each server's own instructions under its key, as far as they are known now."""
    if not children:
        return "This server combines several MCP servers; none is configured."
    lines = [
        "This server combines several MCP servers. A tool, prompt or resource belongs to the server whose key its "
        "name begins with:",
        *(f"- {child.key}{_description(child)}" for child in children),
    ]
    for child in children:
        if child.catalogue is not None and child.catalogue.instructions:
            lines += ["", f"## {child.key}", child.catalogue.instructions]
    return "\n".join(lines)


def _description(child: Child) -> str:
    return f": {child.server.description}" if child.server.description else ""
