"""FastMCP's own client, in front of an aggregator in this process and of servers themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from real_fronts import Entries
from real_servers import direct_command

from fastmcp_aggregator import Aggregator, build_aggregator

ERAS = ("legacy", "auto")
"""The client's modes; with `auto` it speaks 2026-07-28 where it can."""


async def sample(messages: list[Any], params: Any, context: Any) -> str:
    return f"Bonjour, {len(messages)}"


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult[dict[str, Any]]:
    return ElicitResult(action="accept", content={"name": "Zoë", "check": True})


ASKABLE: dict[str, Any] = {
    "sampling_handler": sample,
    "elicitation_handler": elicit,
    "roots": ["file:///nowhere/one", "file:///nowhere/two"],
}
"""Options with which the client can be asked anything: so the aggregator tells the servers of many clients."""


@asynccontextmanager
async def aggregated(entries: Entries, *keys: str) -> AsyncIterator[Aggregator]:
    """An aggregator of these servers, or of all."""
    async with build_aggregator({"mcpServers": {key: entries[key] for key in keys or entries}}) as hub:
        yield hub


def direct_client(entry: dict[str, Any], **options: Any) -> Client[StdioTransport]:
    (command, *arguments), env = direct_command(entry)
    return Client(StdioTransport(command, arguments, env=env, keep_alive=False), mode="auto", **options)
