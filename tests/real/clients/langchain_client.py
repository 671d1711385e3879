"""A client made with langchain-mcp-adapters: it takes all tools, calls some, and prints as one JSON object what it got.

    python langchain_client.py '{"server": {"command": …, "args": …, "env": …}, "calls": [[NAME, ARGUMENTS], …]}'
    python langchain_client.py '{"server": {"url": …}, "calls": [[NAME, ARGUMENTS], …]}'

Over HTTP it does what the framework does if nothing is said: a session of its own for each call.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ElicitResult

events: list[Any] = []


async def progressed(progress: float, total: float | None, message: str | None, context: Any) -> None:
    events.append([progress, total])


async def elicited(mcp_context: Any, params: Any, context: Any) -> ElicitResult:
    events.append(params.message)
    return ElicitResult(action="accept", content={"name": "Zoë"})


async def main(server: dict[str, Any], calls: list[tuple[str, dict[str, Any]]]) -> None:
    callbacks = Callbacks(on_progress=progressed, on_elicitation=elicited)
    transport = {"transport": "streamable_http" if "url" in server else "stdio"}
    client = MultiServerMCPClient({"hub": {**server, **transport}}, callbacks=callbacks)
    async with client.session("hub", auto_initialize=False) as session:
        version = (await session.initialize()).protocolVersion
        listed = await (client.get_tools() if "url" in server else load_mcp_tools(session, callbacks=callbacks))
        tools = {tool.name: tool for tool in listed}
        answers = []
        for name, arguments in calls:
            message = await tools[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": arguments})
            answers.append([message.status, message.content, message.artifact])
    got = {"version": version, "tools": [tool.name for tool in listed], "answers": answers, "events": events}
    print(json.dumps(got, default=vars))


asyncio.run(main(**json.loads(sys.argv[1])))
