"""The tools, resources and prompts of a service, checked before it is ready."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import Tool

from fastmcp_aggregator.service import limits
from fastmcp_aggregator.service.errors import InvalidServerError


async def checked_tools(server: FastMCP[Any]) -> Sequence[Tool]:
    """The tools of the server, once all that it offers has been checked.

    Raises:
        InvalidServerError: with every problem.
    """
    tools = await server.list_tools(run_middleware=False)
    names = [
        each.name
        for each in (
            *tools,
            *await server.list_resources(run_middleware=False),
            *await server.list_resource_templates(run_middleware=False),
            *await server.list_prompts(run_middleware=False),
        )
    ]
    if problems := [
        *_problems_of_server(server),
        *_problems_of_names(names),
        *chain.from_iterable(map(_problems_of_tool, tools)),
    ]:
        raise InvalidServerError("\n".join(["the server cannot start:", *(f"  {problem}" for problem in problems)]))
    return tools


def _problems_of_server(server: FastMCP[Any]) -> Iterator[str]:
    if not re.search(limits.VERSION_PATTERN, str(server.version)):
        yield f"the version {server.version!r} is not a semantic version, such as 1.0.0"


def _problems_of_names(names: Sequence[str]) -> Iterator[str]:
    if not names:
        yield "it has no tool, no resource and no prompt"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name} is the name of more than one tool, resource or prompt"
    for name in names:
        if not re.search(limits.COMPONENT_NAME, name):
            yield f"{name}: a name has up to 128 letters, digits, `_`, `-` and `.`"


def _problems_of_tool(tool: Tool) -> Iterator[str]:
    if not tool.description:
        yield f"{tool.name}: the tool needs a description"
    if tool.timeout is not None and not 0 < tool.timeout <= limits.LONGEST_TIMEOUT:
        yield f"{tool.name}: the timeout must be above 0 and at most {limits.LONGEST_TIMEOUT} s"
