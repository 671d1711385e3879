"""FastMCP's client with fastmcp-tasks: it calls tools, reads skills, and prints as JSON what it got, by mode.

    python fastmcp_tasks_client.py '{"server": {"command": …, "args": …}, "calls": [[NAME, …], …], "tasks": …}'
    python fastmcp_tasks_client.py '{"server": {"url": …}, "calls": …, "tasks": …}'

It comes in one mode after the other, since it takes long to start. `tasks` are calls that are made as tasks, whose
states are printed, and the last one is cancelled.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.skills.client import SkillsClientExtension
from fastmcp.skills.models import (
    GetSkillParams,
    GetSkillRequest,
    GetSkillResult,
    ListSkillsParams,
    ListSkillsRequest,
    ListSkillsResult,
)
from fastmcp_tasks.client import call_tool_task


async def outcome_of(client: Client[Any], name: str, arguments: dict[str, Any]) -> Any:
    try:
        result = await client.call_tool(name, arguments, raise_on_error=False)
    except Exception as error:
        return {"error": type(error).__name__}
    blocks = [block.model_dump(mode="json", exclude_none=True) for block in result.content]
    return {"content": blocks, "isError": result.is_error, "data": result.structured_content}


async def skills_of(client: Client[Any]) -> list[Any]:
    """Each skill, as it is listed and got, with the digests of its files as they are read."""
    session, found = client.session, []
    cursor = None
    while True:
        request = ListSkillsRequest(params=ListSkillsParams(cursor=cursor))
        page = await session.send_request(request, ListSkillsResult)
        found += page.skills
        if (cursor := page.next_cursor) is None:
            break
    told = []
    for skill in found:
        got = await session.send_request(GetSkillRequest(params=GetSkillParams(uri=skill.uri)), GetSkillResult)
        assert got.skill == skill
        files = []
        for file in skill.resources:
            (part,) = (await client.read_resource_mcp(file.uri)).contents
            data = part.text.encode() if hasattr(part, "text") else b""
            files.append(
                [file.uri, len(data) == file.size, f"sha256:{hashlib.sha256(data).hexdigest()}" == file.digest]
            )
        told.append({"name": skill.frontmatter.name, "uri": skill.uri, "files": files})
    return told


async def told_in(mode: str, server: dict[str, Any], calls: list[Any], tasks: list[Any]) -> dict[str, Any]:
    asked: list[str] = []

    async def elicit(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult[dict[str, Any]]:
        asked.append(message)
        return ElicitResult(action="accept", content={"name": "Zoë"})

    if "url" in server:
        transport: Any = StreamableHttpTransport(server["url"])
    else:
        transport = StdioTransport(server["command"], server["args"], env=server.get("env"), keep_alive=False)
    extensions = [SkillsClientExtension()]
    async with Client(transport, mode=mode, elicitation_handler=elicit, extensions=extensions) as client:
        told: dict[str, Any] = {"calls": [await outcome_of(client, *call) for call in calls]}
        if mode != "legacy":
            told["skills"] = await skills_of(client)
            made = [await call_tool_task(client, name, arguments) for name, arguments in tasks]
            if made:
                last = made.pop()
                await last.cancel()
                told["cancelled"] = (await last.wait(state="cancelled")).status
            told["tasks"] = [(await task.wait()).status for task in made]
        return {**told, "asked": asked}


async def main(about: dict[str, Any]) -> None:
    told = {mode: await told_in(mode, **about) for mode in ("auto", "legacy")}
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
