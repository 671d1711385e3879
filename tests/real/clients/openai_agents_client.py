"""A client made with openai-agents: it takes all tools, calls some, and prints as one JSON object what it got.

    python openai_agents_client.py '{"server": {"command": …, "args": …, "env": …}, "calls": [[NAME, ARGUMENTS], …]}'
    python openai_agents_client.py '{"server": {"url": …}, "calls": [[NAME, ARGUMENTS], …]}'

No model is asked: the tools are invoked as an agent would invoke them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agents import Agent, RunContextWrapper
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp, MCPUtil
from agents.tool_context import ToolContext


async def main(server: dict[str, Any], calls: list[tuple[str, dict[str, Any]]]) -> None:
    kind = MCPServerStreamableHttp if "url" in server else MCPServerStdio
    async with kind(server, client_session_timeout_seconds=60) as connection:
        agent = Agent(name="an agent", mcp_servers=[connection])
        listed = await MCPUtil.get_all_function_tools([connection], False, RunContextWrapper(None), agent)
        tools = {tool.name: tool for tool in listed}
        answers = []
        for name, arguments in calls:
            text = json.dumps(arguments)
            context = ToolContext(None, tool_name=name, tool_call_id="1", tool_arguments=text)
            answers.append(await tools[name].on_invoke_tool(context, text))
        version = connection.server_initialize_result.protocolVersion
    got = {"version": version, "tools": [tool.name for tool in listed], "answers": answers, "events": []}
    print(json.dumps(got, default=vars))


asyncio.run(main(**json.loads(sys.argv[1])))
