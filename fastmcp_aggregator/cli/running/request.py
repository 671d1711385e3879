"""One request to an app, by an ordinary client in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastmcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequest, CallToolRequestParams
from pydantic import TypeAdapter, ValidationError

from fastmcp_aggregator.aggregator import Aggregator
from fastmcp_aggregator.cli.terminal.exits import CallError

_ANY_OBJECT = TypeAdapter(dict[str, Any])


async def call_tool(
    app: Aggregator,
    name: str,
    arguments: dict[str, Any],
    on_progress: Callable[[float, float | None, str | None], Awaitable[None]],
) -> dict[str, Any]:
    """The result of `tools/call` as a JSON object, with everything that the server has put into it.

    Raises:
        CallError: the call came back with an error.
    """
    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    async with Client(app, mode="legacy") as client:
        try:
            result: dict[str, Any] = await client.session.send_request(
                request, _ANY_OBJECT, progress_callback=on_progress
            )
        except MCPError as error:
            raise CallError(f"error {error.code}: {error.message}") from error
        except ValidationError as error:
            raise CallError(f"the answer of {name} is no tool result: {error.error_count()} faults") from error
    return result
