"""What legacy clients get of tools that return, since 2026-07-28, something else than objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.server.middleware import Middleware
from support.harness import config, lean
from support.memory import build_aggregator

from fastmcp_aggregator.protocol.legacy import result_for_legacy, tool_for_legacy, tools_for_legacy

TEXT = {"content": [{"type": "text", "text": "[1]"}]}
NAMED = {"name": "x", "inputSchema": {"type": "object"}, "_meta": {"a": 1}}
LIST = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize("tool", [NAMED, {**NAMED, "outputSchema": {"type": "object", "required": ["a"]}}], ids=str)
def test_a_tool_that_returns_objects_stays_as_it_is(tool: dict[str, Any]) -> None:
    assert tool_for_legacy(tool) is tool
    tools = [tool, tool]
    assert tools_for_legacy(tools) is tools


@pytest.mark.parametrize("schema", [LIST, {}, {"type": ["object", "null"]}, {"anyOf": [{}]}, True, None], ids=str)
def test_any_other_schema_of_the_output_is_left_out_and_nothing_else(schema: Any) -> None:
    assert tools_for_legacy([NAMED, {**NAMED, "outputSchema": schema}]) == [NAMED, NAMED]


@pytest.mark.parametrize("result", [TEXT, {**TEXT, "structuredContent": {"a": [1]}}, {}], ids=str)
def test_a_result_with_an_object_or_without_stays_as_it_is(result: dict[str, Any]) -> None:
    assert result_for_legacy(result) is result


@pytest.mark.parametrize("value", [[1], "text", 5, False, None], ids=str)
def test_any_other_structured_content_is_left_out_and_nothing_else(value: Any) -> None:
    assert result_for_legacy({**TEXT, "structuredContent": value}) == TEXT


@pytest.mark.parametrize("middleware", [[], [Middleware()]], ids=["by itself", "with FastMCP middleware"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_clients_of_both_eras_list_and_call_a_modern_tool_that_returns_a_list(
    mode: str, middleware: list[Middleware]
) -> None:
    app = build_aggregator(config(a=lean(era="modern", tool_extra={"outputSchema": LIST}), b=lean()))
    for each in middleware:
        app.add_middleware(each)
    has_it = mode == "auto" and not middleware  # FastMCP knows only objects
    async with Client(app, mode=mode) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert "b:echo" in tools
        assert tools["a:echo"].output_schema == (LIST if has_it else None)
        result = await client.call_tool_mcp("a:raw", {**TEXT, "structuredContent": [1]})
        assert json.loads(result.content[0].text) == [1]  # type: ignore[union-attr]
        assert result.structured_content == ([1] if has_it else None)
