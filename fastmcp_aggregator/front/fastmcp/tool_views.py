"""Tool views, as FastMCP transforms: a search instead of all tools, and prompts and resources as tools.

FastMCP's transforms make these tools and serve them. What is ours is the names: what a search finds is told as it would
be listed for the caller, under names that it accepts, and `call_tool` takes every spelling. The children's own tools go
on being served by the route table, also while they are not listed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from fastmcp.exceptions import ToolError
from fastmcp.server.context import Context
from fastmcp.server.dependencies import get_context
from fastmcp.server.transforms import GetToolNext, PromptsAsTools, ResourcesAsTools, Transform
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.versions import VersionSpec
from mcp.server.connection import Connection
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.front.fastmcp.tool_index import ListedTool, ToolIndex, in_a_line, within_bounds
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.library_internals import connection_of, sdk_request_of
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.protocol.json_rpc import json_size
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.settings.model import AggregatorSettings

_FORWARDING: dict[type, dict[str, tuple[Kind, str]]] = {
    PromptsAsTools: {"get_prompt": (Kind.PROMPT, "name")},
    ResourcesAsTools: {"read_resource": (Kind.RESOURCE, "uri")},
}
SEARCH_TOOLS, CALL_TOOL = "search_tools", "call_tool"
_QUERY = (
    "What the tool does, as its documentation would say it: verb, object, and the product or server if you know it, "
    "without the values for this call. Give two or three wordings, separated by semicolons: "
    "'list open issues github; search repository tickets'"
)
_MOST_FOUND, _MOST_NEAR = 5, 10
"""Tools that a search tells; and those that it names where none fits."""
_MOST_KEPT = 20
"""Tools that stay in the list of a client; those that it has found last."""
_MOST_NAMED = 40
"""Servers that are named where none fits."""


class FoundTools:
    """The tools that each client has found by a search, which stay in its list: the names under which they are listed
    for it, the oldest first.

    A client of the older era has a connection, on which it is told that its list has changed. Requests of the modern
    era stand alone, so all of these clients have the same list.
    """

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Connection, dict[str, None]] = WeakKeyDictionary()

    def of(self, client: Connection | None) -> Collection[str]:
        return () if client is None else self._of.get(client, {})

    def add(self, client: Connection, names: Iterable[str]) -> bool:
        """Keep what a client has found now; whether its list is another one."""
        kept = self._of.setdefault(client, {})
        new = [name for name in names if name not in kept]
        kept.update(dict.fromkeys(new))
        for name in list(kept)[:-_MOST_KEPT]:
            del kept[name]
        return bool(new)


class ToolSearch(BM25SearchTransform):
    """`search_tools` and `call_tool` instead of the tools, while it is on: groups may change at any time."""

    def __init__(self, directory: Directory, default: bool, clients: LiveClients) -> None:
        """`default`: whether it is on for groups that do not say."""
        super().__init__(max_results=_MOST_FOUND, search_tool_name=SEARCH_TOOLS, call_tool_name=CALL_TOOL)
        self._directory = directory
        self._default = default
        self._tool_index = ToolIndex(directory)
        self._clients = clients
        self._found = FoundTools()
        self.has_others: Callable[[], bool] = lambda: True
        """True if there may be other tools than those of the children."""

    @property
    def is_on(self) -> bool:
        """True if clients see the search."""
        return self._directory.searches_tools(self._default)

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return await super().list_tools(tools) if self.is_on else tools

    async def transform_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """The search; before it tools with a page, which a host finds in the list, behind it what was found."""
        found = self._found.of(_legacy_client()) if tools else ()
        paged = [self._as_named(tool) for tool in tools if _has_page(tool)]
        named = {self._public(tool.name): tool for tool in tools if not _has_page(tool)} if found else {}
        kept = [self._as_named(named[name]) for name in found if name in named]
        return [*paged, *await super().transform_tools(tools), *kept]

    async def get_tool(self, name: str, call_next: GetToolNext, *, version: VersionSpec | None = None) -> Tool | None:
        if self.is_on:
            return await super().get_tool(name, call_next, version=version)
        return await call_next(name, version=version)

    def _as_named(self, tool: Tool) -> Tool:
        """The tool under the name that the caller accepts."""
        return tool.model_copy(update={"name": self._public(tool.name)})

    def _public(self, name: str) -> str:
        route = self._directory.table.find(Kind.TOOL, name)
        return name if route is None else self._rule().public_name(route.child.key, route.name)

    def _make_search_tool(self) -> Tool:
        return self._search_tool

    @cached_property
    def _search_tool(self) -> Tool:
        async def search_tools(
            query: Annotated[str, _QUERY],
        ) -> str | list[dict[str, Any]]:
            """Search for tools by what they do.

            Returns the definitions of those that fit best, in the same format as list_tools; or says that none fits.
            """
            if self.has_others():
                every = self._as_listed(await self.get_tool_catalog(get_context()))
                found = await self._tool_index.best_of(every, query, _MOST_NEAR)
            else:
                found = await self._tool_index.best(query, _MOST_NEAR, self._rule())
            if not found.fits:
                return self._nothing_fits(found.tools)
            told = within_bounds(found.tools[:_MOST_FOUND])
            await self._keep(tool["name"] for tool in told)
            return [dict(tool) for tool in told]

        return Tool.from_function(fn=search_tools, name=SEARCH_TOOLS)

    async def _keep(self, names: Iterable[str]) -> None:
        """Keep what was found in the list of a client that can be told of it."""
        client = _legacy_client()
        if client is not None and self._found.add(client, names):
            await self._clients.tell(client, frozenset({Kind.TOOL}))

    def _nothing_fits(self, nearest: Sequence[ListedTool]) -> str:
        """The answer to a model whose search found nothing, so that it searches for something else."""
        keys = [child.key for child in self._directory.children]
        named = ", ".join(keys[:_MOST_NAMED]) + (", …" if len(keys) > _MOST_NAMED else "")
        advice = f"Try other words for what the tool does; the servers are: {named}"
        if not nearest:
            return f"No tool fits. {advice}"
        lines = "\n".join(f"- {in_a_line(tool)}" for tool in nearest)
        return f"No tool seems to fit. The nearest, which a search for their names tells in full:\n{lines}\n{advice}"

    def _as_listed(self, tools: Sequence[Tool]) -> list[dict[str, Any]]:
        """The tools as `tools/list` would have them for this caller."""
        rule, table = self._rule(), self._directory.table
        listed = {tool["name"]: tool for tool in table.listing(Kind.TOOL, rule)}
        found = []
        for tool in tools:
            route = table.find(Kind.TOOL, tool.name)
            public = None if route is None else rule.public_name(route.child.key, route.name)
            own = tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True)
            found.append(listed.get(public, own) if public is not None else own)
        return found

    def _make_call_tool(self) -> Tool:
        return self._call_tool

    @cached_property
    def _call_tool(self) -> Tool:
        """FastMCP's own lists all tools for each call, and knows one spelling."""

        async def call_tool(
            name: Annotated[str, "The name of the tool to call, as search_tools tells it"],
            arguments: Annotated[dict[str, Any] | None, "Arguments to pass to the tool"] = None,
        ) -> ToolResult:
            """Call a tool by name with the given arguments.

            Use this to execute tools discovered via search_tools.
            """
            return await self._call(name, arguments or {})

        return Tool.from_function(fn=call_tool, name=CALL_TOOL)

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        context = get_context()
        if await self._directory.route(Kind.TOOL, name) is None and not await self._is_known(context, name):
            rule = self._rule()
            unknown = errors.unknown_name("tool", name, rule, self._directory.table.names(Kind.TOOL, rule))
            raise ToolError(unknown.message, log_level=logging.DEBUG)  # for the model, which may search again
        return await context.fastmcp.call_tool(name, arguments)

    async def _is_known(self, context: Context, name: str) -> bool:
        """True if it is a tool of the app's own. The search does not call itself."""
        if name in (SEARCH_TOOLS, CALL_TOOL):
            return False
        return any(tool.name == name for tool in await self.get_tool_catalog(context))

    def _rule(self) -> NameRule:
        request = get_context().request_context
        params = sdk_request_of(request).session.client_params if request is not None else None
        return self._directory.naming.rule(params.client_info.name if params else None)


def _legacy_client() -> Connection | None:
    """The connection of the client that asks, if it is of the older era."""
    request = get_context().request_context
    of_client = sdk_request_of(request) if request is not None else None
    if of_client is None or of_client.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    return connection_of(of_client.session)


def _has_page(tool: Tool) -> bool:
    meta = tool.meta or {}
    return isinstance(meta.get("ui"), dict) or "ui/resourceUri" in meta


class Forwarding(Transform):
    """FastMCP's tools for something else than tools. It makes them anew for each list and each call, which takes
    milliseconds; this makes them once.
    """

    def __init__(self, view: PromptsAsTools | ResourcesAsTools) -> None:
        self._view = view
        self.kind_of = _FORWARDING[type(view)]
        """By tool, the kind of component that it asks for, and the argument with its name."""
        self._made: dict[str, Tool] = {}

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [*tools, *(await self._tools()).values()]

    async def get_tool(self, name: str, call_next: GetToolNext, *, version: VersionSpec | None = None) -> Tool | None:
        return (await self._tools()).get(name) or await call_next(name, version=version)

    async def _tools(self) -> dict[str, Tool]:
        if not self._made:
            self._made = {tool.name: tool for tool in await self._view.list_tools([])}
        return self._made


class ToolViews:
    """The tool views of one virtual server."""

    def __init__(self, app: Any, directory: Directory, settings: AggregatorSettings, clients: LiveClients) -> None:
        self.search = ToolSearch(directory, settings.tool_search, clients)
        self._others = list[Forwarding]()
        if settings.prompts_as_tools:
            self._others.append(Forwarding(PromptsAsTools(app)))
        if settings.resources_as_tools:
            self._others.append(Forwarding(ResourcesAsTools(app)))
        self.transforms: list[Transform] = [self.search, *self._others]
        """The views, as FastMCP's transforms."""
        for transform in self.transforms:
            app.add_transform(transform)

    @property
    def are_on(self) -> bool:
        """True if clients see other tools than those of the children."""
        return bool(self._others) or self.search.is_on

    @property
    def forwarding(self) -> dict[str, tuple[Kind, str]]:
        """By tool of ours that asks for a component in its turn: the kind, and the argument with its name."""
        found = {CALL_TOOL: (Kind.TOOL, "name")} if self.search.is_on else {}
        for view in self._others:
            found |= view.kind_of
        return found

    async def size_of_search(self) -> int:
        """The bytes of a list of tools with a search instead of the children's tools."""
        tools = await self.search.transform_tools([])
        listed = [tool.to_mcp_tool().model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        return json_size({"tools": listed})
