"""Downgrades of modern tools and results for legacy clients. Pure.

Since 2026-07-28 a tool may return any JSON value and describe it by any schema; before, there were only objects. For
one tool of the other kind a legacy client would refuse the whole list, and for one such value the whole result. The
value is in the result's text as well (2026-07-28, tools: structured content). FastMCP, too, knows only objects.
"""

from __future__ import annotations

from typing import Any

from fastmcp_aggregator.protocol.raw_json import is_object


def tool_for_legacy(tool: dict[str, Any]) -> dict[str, Any]:
    """A listed tool; the same object, unless the schema of its output is left out."""
    schema = tool.get("outputSchema")
    if "outputSchema" not in tool or (isinstance(schema, dict) and schema.get("type") == "object"):
        return tool
    return {name: value for name, value in tool.items() if name != "outputSchema"}


def tools_for_legacy(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Listed tools; the same list, unless there is one to change."""
    changed = [tool_for_legacy(tool) for tool in tools]
    return tools if all(map(lambda one, other: one is other, changed, tools)) else changed


def result_for_legacy(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a call; the same object, unless its structured content is left out."""
    content = result.get("structuredContent")
    if isinstance(content, dict) or "structuredContent" not in result or is_object(content):
        return result
    return {name: value for name, value in result.items() if name != "structuredContent"}
