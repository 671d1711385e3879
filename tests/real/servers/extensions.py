"""A server with FastMCP's tasks and skills: `extensions.py SKILLS [PORT]`; without a port, on stdio."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.providers.skills import SkillsDirectoryProvider
from fastmcp.skills.extension import SkillsExtension
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult, ResourceLink

server = FastMCP("extensions")
server.add_extension(TasksExtension())
skills = SkillsDirectoryProvider(Path(sys.argv[1]), experimental_skills=True)
server.add_provider(skills)
server.add_extension(SkillsExtension(providers=[skills]))


@server.tool(task=True)
async def add(a: int, b: int) -> int:
    await asyncio.sleep(0.2)
    return a + b


@server.tool(task=TaskConfig(mode="required"))
async def required(word: str) -> str:
    await asyncio.sleep(0.2)
    return word.upper()


@server.tool(task=TaskConfig(mode="required"))
async def links() -> ResourceLink:
    return ResourceLink(type="resource_link", uri="file:///made/by/a/task", name="made")


@server.tool(task=TaskConfig(mode="required"))
async def fails() -> str:
    raise ToolError("it failed")


@server.tool(task=TaskConfig(mode="required"))
async def asks(ctx: Context) -> str | InputRequiredResult:
    given = (ctx.input_responses or {}).get("name")
    if given is None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        asked = ElicitRequest(params=ElicitRequestFormParams(message="Who?", requested_schema=schema))
        return InputRequiredResult(input_requests={"name": asked})
    content = given["content"] if isinstance(given, dict) else given.content
    return f"Hello, {content['name']}"


@server.tool(task=TaskConfig(mode="required"))
async def endless() -> str:
    await asyncio.sleep(3600)
    return "never"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run(transport="http", port=int(sys.argv[2]), show_banner=False)
    else:
        server.run(show_banner=False)
