"""The tools, resources and prompts of a service, checked before it is ready."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastmcp import FastMCP
from fastmcp.prompts import Prompt
from fastmcp.resources import Resource, ResourceTemplate
from fastmcp.tools import Tool

from fastmcp_aggregator.service import limits
from fastmcp_aggregator.service.errors import InvalidServerError


@dataclass(frozen=True, slots=True)
class ServiceOffer:
    tools: tuple[Tool, ...]
    resources: tuple[Resource | ResourceTemplate, ...]
    prompts: tuple[Prompt, ...]


async def checked_offer(server: FastMCP[Any]) -> ServiceOffer:
    """The components of the server.

    Raises:
        InvalidServerError: with every problem.
    """
    offer = ServiceOffer(
        tuple(await server.list_tools(run_middleware=False)),
        (
            *await server.list_resources(run_middleware=False),
            *await server.list_resource_templates(run_middleware=False),
        ),
        tuple(await server.list_prompts(run_middleware=False)),
    )
    if problems := [*_problems_of_server(server), *_problems_of_offer(offer)]:
        raise InvalidServerError("\n".join(["the server cannot start:", *(f"  {problem}" for problem in problems)]))
    return offer


def _problems_of_server(server: FastMCP[Any]) -> Iterator[str]:
    if not re.search(limits.VERSION_PATTERN, str(server.version)):
        yield f"the version {server.version!r} is not a semantic version, such as 1.0.0"


def _problems_of_offer(offer: ServiceOffer) -> Iterator[str]:
    components = [*offer.tools, *offer.resources, *offer.prompts]
    if not components:
        yield "it has no tool, no resource and no prompt"
    names = [component.name for component in components]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name} is the name of more than one tool, resource or prompt"
    for name in names:
        if not re.search(limits.COMPONENT_NAME, name):
            yield f"{name}: a name has up to 128 letters, digits, `_`, `-` and `.`"
    for tool in offer.tools:
        yield from (f"{tool.name}: {problem}" for problem in _problems_of_tool(tool))


def _problems_of_tool(tool: Tool) -> Iterator[str]:
    if not tool.description:
        yield "the tool needs a description"
    if tool.timeout is not None and not 0 < tool.timeout <= limits.LONGEST_TIMEOUT:
        yield f"the timeout must be above 0 and at most {limits.LONGEST_TIMEOUT} s"
