"""The index of a search for tools: made once for a route table, beside the event loop, like each search in it.

FastMCP's own search lists and hashes all tools each time, during which nothing else is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.library_internals import BM25Index
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.table import RouteTable

_MOST_WORDS = 50
"""Different words of a query that count; and characters of it that are read, for each of them."""
_LONGEST_WORD = 20


class ToolIndex:
    """Searches the tools of a directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._table: RouteTable | None = None
        self._names: list[str] = []
        self._index = BM25Index()
        self._one_at_a_time = asyncio.Lock()

    async def best(self, query: str, most: int, rule: NameRule) -> list[dict[str, Any]]:
        """The tools that fit best, as they are listed under a rule for names."""
        await self._directory.ready()
        words = " ".join(list(dict.fromkeys(query[: _MOST_WORDS * _LONGEST_WORD].split()))[:_MOST_WORDS])
        async with self._one_at_a_time:
            table = self._directory.table
            if table is not self._table:
                named = list(table.named(Kind.TOOL, self._directory.naming.rule(None)))
                index = BM25Index()
                await asyncio.to_thread(_fill, index, [(name, route.component) for name, route in named])
                self._index, self._names, self._table = index, [name for name, _ in named], table
            found = await asyncio.to_thread(self._index.query, words, most)
            names = [self._names[number] for number in found]
        listed = {tool["name"]: tool for tool in table.listing(Kind.TOOL, rule)}
        routes = [route for name in names if (route := table.find(Kind.TOOL, name)) is not None]
        shown = [table.public_id(Kind.TOOL, rule, route) for route in routes]
        return [listed[name] for name in shown if name in listed]


def _fill(index: Any, tools: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    index.build([" ".join(_texts(name, tool)) for name, tool in tools])


def _texts(name: str, tool: Mapping[str, Any]) -> list[str]:
    """What is searched of a tool: its name, its description, and those of its arguments."""
    texts = [name, tool.get("description")]
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    for argument, about in (properties if isinstance(properties, Mapping) else {}).items():
        texts += [argument, about.get("description") if isinstance(about, Mapping) else None]
    return [text for text in texts if isinstance(text, str)]
