"""The index of a search for tools: made once for a list of tools, beside the event loop, like each search in it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.naming.tool_ranking import Tool, ToolRanking, searched
from fastmcp_aggregator.protocol.json_rpc import json_size
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.table import RouteTable

ListedTool = Mapping[str, Any]

_MOST_INDEXES = 8
_MOST_INDEXED, _LEAST_INDEXED = 1024 * 1024, 500
"""Characters of all tools, of which each has the same share, and of one tool at least."""
_LONGEST_QUERY = 1000
_LARGEST = 4000
"""Bytes of all definitions that a search tells, at most."""
_DESCRIBED, _DESCRIBED_SHORTLY = 600, 160
"""Characters of a description that are told where there is little room, and where there is none."""
_MOST_ARGUMENTS, _LONGEST_ARGUMENT = 20, 64
_OF_AN_ARGUMENT = frozenset({"type", "enum", "items", "default", "const", "anyOf", "oneOf"})


class Found(NamedTuple):
    """Tools, the best first, and whether one of them fits; otherwise they are the nearest."""

    tools: list[ListedTool]
    fits: bool


class _Index(NamedTuple):
    names: Sequence[str]
    ranking: ToolRanking


class ToolIndex:
    """Searches the tools of a directory. Callers may be listed different ones: the lists searched last stay indexed."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._digests: WeakKeyDictionary[RouteTable, bytes] = WeakKeyDictionary()
        self._indexes: OrderedDict[bytes, _Index] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def best(self, query: str, most: int, rule: NameRule) -> Found:
        """The tools that fit best, under the names that a rule gives them."""
        await self._directory.ready()
        table = self._directory.table
        async with self._one_at_a_time:
            digest = self._digests.get(table, b"")
            if digest not in self._indexes:
                named = list(table.named(Kind.TOOL, self._directory.naming.rule(None)))
                texts = [(route.name, route.child.key, route.component) for _, route in named]
                digest = self._digests[table] = await self._made([name for name, _ in named], texts)
            index = self._used(digest)
            found = await asyncio.to_thread(index.ranking.best, query[:_LONGEST_QUERY], most)
        names = [index.names[number] for number in found.numbers]
        listed = {tool["name"]: tool for tool in table.listing(Kind.TOOL, rule)}
        routes = [route for name in names if (route := table.find(Kind.TOOL, name)) is not None]
        shown = [rule.public_name(route.child.key, route.name) for route in routes]
        return Found([listed[name] for name in shown if name in listed], found.fits)

    async def best_of(self, tools: Sequence[ListedTool], query: str, most: int) -> Found:
        """The tools that fit best, of some that are listed."""
        names = [tool["name"] for tool in tools]
        async with self._one_at_a_time:
            digest = await self._made(names, [(name, "", tool) for name, tool in zip(names, tools, strict=True)])
            found = await asyncio.to_thread(self._used(digest).ranking.best, query[:_LONGEST_QUERY], most)
        return Found([tools[number] for number in found.numbers], found.fits)

    async def _made(self, names: Sequence[str], texts: Sequence[tuple[str, str, ListedTool]]) -> bytes:
        """The digest of a list of which there is an index then."""
        digest, tools = await asyncio.to_thread(_digested, names, texts)
        if digest not in self._indexes:
            self._indexes[digest] = _Index(names, await asyncio.to_thread(ToolRanking, tools))
            if len(self._indexes) > _MOST_INDEXES:
                self._indexes.popitem(last=False)
        return digest

    def _used(self, digest: bytes) -> _Index:
        self._indexes.move_to_end(digest)
        return self._indexes[digest]


def within_bounds(tools: Sequence[ListedTool]) -> list[ListedTool]:
    """As much of the definitions as there is room for: all of it; else less of the last ones, then of all."""
    shortened = list(tools)
    for less in (_shorter, _shortest):
        for number in reversed(range(len(tools))):
            if _size(shortened) <= _LARGEST:
                return shortened
            shortened[number] = less(tools[number])
    while len(shortened) > 1 and _size(shortened) > _LARGEST:
        shortened.pop()
    return shortened


def in_a_line(tool: ListedTool) -> str:
    """A name, and the beginning of what it is for."""
    text = tool.get("description")
    about = " ".join(text.split()) if isinstance(text, str) else ""
    return f"{tool['name']}: {_cut(about, _DESCRIBED_SHORTLY)}" if about else str(tool["name"])


def _digested(names: Sequence[str], texts: Sequence[tuple[str, str, ListedTool]]) -> tuple[bytes, list[Tool]]:
    share = max(_LEAST_INDEXED, _MOST_INDEXED // max(1, len(texts)))
    tools = [_beginning(searched(*each), share) for each in texts]
    return sha256(repr((names, tools)).encode()).digest(), tools


def _beginning(tool: Tool, most: int) -> Tool:
    """A tool with as much of each of its texts: servers may list megabytes, of which an index takes seconds to make."""
    left, arguments = most, []
    for text in tool.arguments:
        if left <= 0:
            break
        arguments.append(text[:left])
        left -= len(text)
    return tool._replace(name=tool.name[:most], description=tool.description[:most], arguments=arguments)


def _size(tools: Sequence[ListedTool]) -> int:
    return json_size({"result": tools})


def _shorter(tool: ListedTool) -> ListedTool:
    """A definition that suffices for a call: name, beginning of the description, and the arguments, one line each."""
    schema = tool.get("inputSchema")
    schema = schema if isinstance(schema, Mapping) else {}
    properties = schema.get("properties")
    arguments = dict(_arguments(properties if isinstance(properties, Mapping) else {}))
    kept = {name: schema[name] for name in ("type", "required", "$defs") if name in schema}
    return {**_named(tool, _DESCRIBED), "inputSchema": {**kept, "properties": arguments}}


def _arguments(properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, about in properties.items():
        of_argument = about if isinstance(about, Mapping) else {}
        kept = {key: value for key, value in of_argument.items() if key in _OF_AN_ARGUMENT}
        if isinstance(text := of_argument.get("description"), str):
            kept["description"] = _cut(text, _DESCRIBED_SHORTLY)
        yield name, kept


def _shortest(tool: ListedTool) -> ListedTool:
    """A name, with what it is for and what its arguments are called; to search for it alone tells more."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    every = list(properties)[:_MOST_ARGUMENTS] if isinstance(properties, Mapping) else []
    names = [name for name in every if len(name) <= _LONGEST_ARGUMENT]
    return {
        **_named(tool, _DESCRIBED_SHORTLY),
        "inputSchema": {"type": "object", "properties": {name: {} for name in names}},
    }


def _named(tool: ListedTool, most: int) -> dict[str, Any]:
    description = tool.get("description")
    text = {"description": _cut(description, most)} if isinstance(description, str) else {}
    return {"name": tool["name"], **text}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
