"""A client made with the Python SDK or with FastMCP: it lists and calls tools, and prints as JSON what it got.

python python_client.py '{"library": "mcp", "mode": "auto", "server": {"command": …}, "calls": [[NAME, ARGUMENTS]]}'
python python_client.py '{"library": "fastmcp", "mode": "legacy", "server": …, "calls": …}'
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any


def client_of(library: str, mode: str, server: dict[str, Any]) -> Any:
    if library == "fastmcp":
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        return Client(StdioTransport(**server, keep_alive=False), mode=mode)
    from mcp import Client, StdioServerParameters

    return Client(StdioServerParameters(**server), mode=mode)


async def main(library: str, mode: str, server: dict[str, Any], calls: list[tuple[str, dict[str, Any]]]) -> None:
    options = {"raise_on_error": False} if library == "fastmcp" else {}
    async with client_of(library, mode, server) as client:
        session = client.session
        listed = await session.list_tools()
        answers = [await client.call_tool(name, arguments, **options) for name, arguments in calls]
    got = {
        "version": session.protocol_version,
        "tools": [tool.name for tool in listed.tools],
        "answers": [[block.model_dump(mode="json", exclude_none=True) for block in each.content] for each in answers],
    }
    print(json.dumps(got))


asyncio.run(main(**json.loads(sys.argv[1])))
