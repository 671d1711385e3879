"""The part of a tool's input schema that says which arguments are HTTP headers as well (2026-07-28, SEP-2243)."""

from __future__ import annotations

from typing import Any

from mcp.shared.inbound import X_MCP_HEADER_KEY, find_invalid_x_mcp_header, x_mcp_header_map


def header_schema(input_schema: Any) -> dict[str, Any]:
    """The schema with nothing but the properties that have an `x-mcp-header`; empty if none has, or one is invalid."""
    if find_invalid_x_mcp_header(input_schema) is not None:
        return {}
    kept: dict[str, Any] = {}
    for path in x_mcp_header_map(input_schema):
        whole, part = input_schema, kept
        for name in path:
            whole, part = whole["properties"][name], part.setdefault("properties", {}).setdefault(name, {})
        part |= {"type": whole["type"], X_MCP_HEADER_KEY: whole[X_MCP_HEADER_KEY]}
    return kept
