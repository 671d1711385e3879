"""The children's components as a FastMCP provider: one provider, one look-up, whatever the number of children.

This is how FastMCP code sees them: parents that mount the aggregator, middleware, transforms, `app.list_tools()`.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastmcp.prompts import Prompt
from fastmcp.resources import Resource, ResourceTemplate
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool
from fastmcp.utilities.components import FastMCPComponent
from fastmcp.utilities.versions import VersionSpec

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.front.fastmcp.components import ChildPrompt, ChildResource, ChildTemplate, ChildTool, Forward
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.table import Route


class ChildrenProvider(Provider):
    """Serves what is in the directory, under the names that ordinary clients see."""

    def __init__(self, directory: Directory, forward: Forward) -> None:
        super().__init__()
        self._directory = directory
        self._forward = forward

    async def get_tasks(self) -> Sequence[FastMCPComponent]:
        """None: a child's component never runs as a background task of ours. FastMCP asks before any child is up."""
        return ()

    async def _list_tools(self) -> Sequence[Tool]:
        return [self._tool(name, route) for name, route in await self._served(Kind.TOOL)]

    async def _list_resources(self) -> Sequence[Resource]:
        return [self._resource(uri, route) for uri, route in await self._served(Kind.RESOURCE)]

    async def _list_resource_templates(self) -> Sequence[ResourceTemplate]:
        return [self._template(uri, route) for uri, route in await self._served(Kind.TEMPLATE)]

    async def _list_prompts(self) -> Sequence[Prompt]:
        return [self._prompt(name, route) for name, route in await self._served(Kind.PROMPT)]

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        route = await self._directory.route(Kind.TOOL, name)
        return self._tool(name, route) if route and version is None else None

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Prompt | None:
        route = await self._directory.route(Kind.PROMPT, name)
        return self._prompt(name, route) if route and version is None else None

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Resource | None:
        route = self._directory.table.find(Kind.RESOURCE, uri)
        return self._resource(uri, route) if route and version is None else None

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> ResourceTemplate | None:
        """Any address of a child can be read, whether a template of its covers it or not: the child decides."""
        found = self._directory.table.find_uri(uri)
        if found is None or version is not None:
            return None
        child, original = found
        return self._template(uri, Route(child, original, {"uriTemplate": original, "name": original}))

    def _tool(self, name: str, route: Route) -> Tool:
        return ChildTool.of(name, route, self._directory.table.publisher(route.child), self._forward)

    def _resource(self, uri: str, route: Route) -> Resource:
        return ChildResource.of(uri, route, self._directory.table.publisher(route.child), self._forward)

    def _template(self, uri: str, route: Route) -> ResourceTemplate:
        return ChildTemplate.of(uri, route, self._directory.table.publisher(route.child), self._forward)

    def _prompt(self, name: str, route: Route) -> Prompt:
        return ChildPrompt.of(name, route, self._directory.table.publisher(route.child), self._forward)

    async def _served(self, kind: Kind) -> list[tuple[str, Route]]:
        await self._directory.ready()
        return list(self._directory.table.named(kind, self._directory.naming.rule(None)))
