"""Local components: what the app has besides its children, and whether FastMCP's chain may be bypassed.

FastMCP serves those; what is said here decides which requests it gets.
"""

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.front.fastmcp.tool_views import ToolViews
from fastmcp_aggregator.library_internals import components_of, transforms_of

_OF_EVERY_AGGREGATOR = 2
"""Providers that are always there: the app's own components, and its children's."""


class LocalComponents:
    """Looks at the app as it is now: parts can be added at any time."""

    def __init__(self, app: FastMCP[None], views: ToolViews) -> None:
        self._app = app
        self._views = views
        views.search.has_others = lambda: not self.is_empty

    @property
    def bypass_allowed(self) -> bool:
        """True if the children's components are served as they are: no middleware, and no transform but our views."""
        views = self._views.transforms
        return not self._app.middleware and all(map(views.__contains__, transforms_of(self._app)))

    @property
    def has_views(self) -> bool:
        """True if there are tools that show the children's components in another way."""
        return self._views.are_on

    @property
    def is_searching(self) -> bool:
        """True if tools are found by a search, and called through a tool of ours."""
        return self._views.search.is_on and self.bypass_allowed

    @property
    def is_empty(self) -> bool:
        """True if the children's components are all there is, as they are, apart from views."""
        others = len(self._app.providers) > _OF_EVERY_AGGREGATOR or components_of(self._app.local_provider)
        return self.bypass_allowed and not others

    def has_none_of(self, kind: Kind) -> bool:
        """True if the children's components of this kind are all there is."""
        return self.is_empty and not (kind is Kind.TOOL and self.has_views)

    def forwarded(self, tool: str, arguments: Any) -> tuple[Kind, str] | None:
        """The request that a call of one of our views makes in the end, also by way of another view."""
        named = self._views.forwarding.get(tool)
        if named is None or not isinstance(arguments, dict):
            return None
        kind, argument = named
        name = arguments.get(argument)
        if not isinstance(name, str):
            return None
        inner = self.forwarded(name, arguments.get("arguments")) if kind is Kind.TOOL and name != tool else None
        return inner or (kind, name)

    async def has(self, kind: Kind, name: str) -> bool:
        """True if FastMCP has a component of this name; to be asked for names that are no child's."""
        return not self.has_none_of(kind) and await self._find(kind, name) is not None

    async def _find(self, kind: Kind, name: str) -> Any:
        if kind is Kind.TOOL:
            return await self._app.get_tool(name)
        if kind is Kind.PROMPT:
            return await self._app.get_prompt(name)
        return await self._app.get_resource(name) or await self._app.get_resource_template(name)
