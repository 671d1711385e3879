"""What belongs to a group. Pure, over plain names.

A tool that is named without its server belongs to the group only while exactly one server of the group offers it, so
that nothing joins a group because some other server starts to offer a tool of that name. A pattern takes all that fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from fastmcp_aggregator.groups.models import Group


class ToolFilter:
    """Which tools of which servers a group has. `offered` are the tools' own names by server key, as listed now."""

    def __init__(self, group: Group, offered: Mapping[str, Iterable[str]]) -> None:
        self._all = not group.tools
        self._servers = frozenset(group.servers)
        prefixed = [tool.partition(":") for tool in group.tools if ":" in tool]
        self._prefixed = [(_pattern(key), _pattern(name)) for key, _, name in prefixed]
        bare = [tool for tool in group.tools if ":" not in tool]
        self._patterns = [_pattern(tool) for tool in bare if "*" in tool]
        self._names = {name for name in bare if "*" not in name and _owners(name, group, offered) == 1}

    def has(self, server_key: str, name: str) -> bool:
        """Whether a tool, by its server and its own name, belongs to the group."""
        if server_key not in self._servers:
            return False
        if self._all:
            return True
        if any(key.fullmatch(server_key) and tool.fullmatch(name) for key, tool in self._prefixed):
            return True
        return name in self._names or any(tool.fullmatch(name) for tool in self._patterns)


def _owners(name: str, group: Group, offered: Mapping[str, Iterable[str]]) -> int:
    return sum(name in offered.get(key, ()) for key in group.servers)


def missing_tools(group: Group, offered: Mapping[str, Iterable[str]]) -> list[str]:
    """The entries of `tools` that fit no tool (or, without a server, more than one), as far as that is known.

    A server that is not in `offered` has not been listed and may have anything.
    """
    unlisted = [key for key in group.servers if key not in offered]
    return [
        entry for entry in group.tools if not _may_fit(entry, unlisted) and not _fits_something(entry, group, offered)
    ]


def _may_fit(entry: str, unlisted: Iterable[str]) -> bool:
    key, separator, _ = entry.partition(":")
    return any(not separator or _pattern(key).fullmatch(server) for server in unlisted)


def _fits_something(entry: str, group: Group, offered: Mapping[str, Iterable[str]]) -> bool:
    alone = ToolFilter(replace(group, tools=(entry,)), offered)
    return any(alone.has(server, name) for server in offered for name in offered[server])


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)
