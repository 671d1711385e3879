"""Group membership of tools. Pure, over plain names.

A tool that is named without its server belongs to the group only while all servers of the group have been listed and
exactly one of them offers it, so that nothing joins a group because some other server starts to offer a tool of that
name, or because the server that was meant is down, disabled or taken away. A pattern takes all that fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from fastmcp_aggregator.groups.models import Group


class ToolFilter:
    """The tools of a group, by server. `offered` are the tools' own names by server key, as last listed.

    A server that is not in `offered` has not been listed, and may have anything.
    """

    def __init__(self, group: Group, offered: Mapping[str, Iterable[str]]) -> None:
        self._all = not group.tools
        self._servers = frozenset(group.servers)
        prefixed = [tool.partition(":") for tool in group.tools if ":" in tool]
        self._prefixed = [(_pattern(key), _pattern(name)) for key, _, name in prefixed]
        bare = [tool for tool in group.tools if ":" not in tool]
        self._patterns = [_pattern(tool) for tool in bare if "*" in tool]
        self._names = frozenset(name for name in bare if "*" not in name and owner_of(name, group, offered))
        self.basis = group, self._names
        """All that the answers follow from."""

    def has(self, server_key: str, name: str) -> bool:
        """True if a tool, by its server and its own name, belongs to the group."""
        if server_key not in self._servers:
            return False
        if self._all:
            return True
        if any(key.fullmatch(server_key) and tool.fullmatch(name) for key, tool in self._prefixed):
            return True
        return name in self._names or any(tool.fullmatch(name) for tool in self._patterns)


def owner_of(name: str, group: Group, offered: Mapping[str, Iterable[str]]) -> str | None:
    """Return the server of a tool that is named without one; None if there is none or it is ambiguous."""
    owners = [key for key in (*group.servers, *group.absent) if key not in offered or name in offered[key]]
    return owners[0] if len(owners) == 1 and owners[0] in offered else None


def missing_tools(group: Group, offered: Mapping[str, Iterable[str]]) -> list[str]:
    """Find the entries of `tools` that match no tool (or, without a server, several), as far as that is known.

    A server that is not in `offered` has not been listed and may have anything.
    """
    unlisted = [*(key for key in group.servers if key not in offered), *group.absent]
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
