"""The groups loader: `Groups` from a file or a dict, with every problem reported at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from fastmcp_aggregator.config.documents import Location, read_json
from fastmcp_aggregator.config.fields import Fields, kind_of
from fastmcp_aggregator.groups.models import DEFAULT_GROUP, FROM_DICT, Group, Groups, is_group_id
from fastmcp_aggregator.naming.suggestions import closest

_TEXTS = ("id", "name", "description")
_LISTS = ("servers", "tools")
_FIELDS = (*_TEXTS, *_LISTS, "tool_search")
_MOST_LISTED = 50
"""Servers that a message names."""


def load_groups(
    source: str | Path | Mapping[str, Any] | Groups | None, servers: Collection[str], absent: Collection[str] = ()
) -> Groups:
    """Load the groups of a file (its path) or of a dict of the same shape; `servers` are the configured server keys.
    Groups may also name what is `absent`, and are without it.

    Without a source there is one group, `default`, with all servers. That a tool exists is not checked here: what a
    server offers is known only once it has been listed.

    Raises:
        ConfigError: with every problem that was found.
    """
    name = source.source if isinstance(source, Groups) else str(source) if isinstance(source, str | Path) else FROM_DICT
    read = _read(source, name, {**dict.fromkeys(servers), **dict.fromkeys(absent)})
    groups = {group.id: _among(group, servers) for group in read}
    if DEFAULT_GROUP not in groups:
        everything = Group(DEFAULT_GROUP, "Default", "All servers.", tuple(servers), is_implied=True)
        groups = {DEFAULT_GROUP: everything, **groups}
    named = frozenset(key for group in read for key in group.servers)
    return Groups(groups, "" if source is None else name, named.difference(servers), tuple(read))


def _among(group: Group, servers: Collection[str]) -> Group:
    absent = tuple(key for key in group.servers if key not in servers)
    return replace(group, servers=tuple(key for key in group.servers if key in servers), absent=absent)


def _read(source: Any, name: str, servers: Collection[str]) -> list[Group]:
    if source is None:
        return []
    root = Location(name)
    if isinstance(source, Groups):
        groups = list(source.read)
        for group in groups:
            _check_servers(group.servers, root.at(group.id).at("servers"), servers)
    else:
        document = source if isinstance(source, Mapping) else read_json(Path(source), root, takes_comments=True)
        groups = _groups(document, root, servers) if not root.problems else []
    root.raise_problems()
    return groups


def _groups(document: object, root: Location, servers: Collection[str]) -> list[Group]:
    if not isinstance(document, Mapping):
        root.report(f"must be an object with one entry for each group, not {kind_of(document)}")
        return []
    found = (_group(key, entry, root.at(key), servers) for key, entry in document.items())
    return [group for group in found if group is not None]


def _group(key: str, entry: object, location: Location, servers: Collection[str]) -> Group | None:
    if not is_group_id(key):
        location.report(
            "a group's id has up to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or digit"
        )
        return None
    if not isinstance(entry, Mapping):
        location.report(f"must be an object with `servers`, not {kind_of(entry)}")
        return None
    for unknown in entry.keys() - {*_FIELDS}:
        location.at(unknown).report(f"is not a field of a group; known are {', '.join(_FIELDS)}")
    texts = {field: _text(entry, field, location) for field in _TEXTS}
    if texts["id"] not in ("", key):
        location.at("id").report(f"must be the same as the entry's key, {key!r}")
    if "servers" not in entry:
        location.report("has no `servers`; name the servers whose tools the group has")
    lists = {field: _texts(entry, field, location) for field in _LISTS}
    _check_servers(lists["servers"], location.at("servers"), servers)
    _check_tools(lists["tools"], location.at("tools"), lists["servers"])
    search = Fields(entry, location).flag("tool_search")
    return Group(key, texts["name"] or key, texts["description"], lists["servers"], lists["tools"], search)


def _text(entry: Mapping[str, Any], field: str, location: Location) -> str:
    value = entry.get(field)
    if value is not None and not isinstance(value, str):
        location.at(field).report(f"must be a string, not {kind_of(value)}")
    return value if isinstance(value, str) else ""


def _texts(entry: Mapping[str, Any], field: str, location: Location) -> tuple[str, ...]:
    values = entry.get(field) or []
    if isinstance(values, str) or not isinstance(values, Sequence):
        location.at(field).report(f"must be a list of strings, not {kind_of(values)}")
        return ()
    for index, value in enumerate(values):
        if not isinstance(value, str) or not value:
            location.at(field).at(index).report(f"must be a string that is not empty, not {kind_of(value)}")
    return tuple(dict.fromkeys(value for value in values if isinstance(value, str) and value))


def _check_servers(named: Sequence[str], location: Location, servers: Collection[str]) -> None:
    for index, key in enumerate(named):
        if key not in servers:
            similar = closest(key, servers, 1)
            hint = f"; did you mean {similar[0]!r}?" if similar else f"; there are {_listed(servers)}"
            location.at(index).report(f"there is no server {key!r}{hint}")


def _listed(servers: Collection[str]) -> str:
    others = len(servers) - _MOST_LISTED
    more = [f"{others} more"] if others > 0 else []
    return ", ".join([*map(repr, islice(servers, _MOST_LISTED)), *more])


def _check_tools(tools: Sequence[str], location: Location, servers: Sequence[str]) -> None:
    for index, tool in enumerate(tools):
        key, separator, name = tool.partition(":")
        if separator and (not key or not name):
            location.at(index).report("must be `server:tool`, or a tool's own name")
        elif separator and "*" not in key and key not in servers:
            location.at(index).report(f"names the server {key!r}, which is not among the `servers` of the group")
