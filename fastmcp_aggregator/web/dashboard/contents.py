"""The contents of each group, as its own clients are listed them: the page learns of nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec import Raw

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.protocol.raw_json import encode
from fastmcp_aggregator.routing.route import Route
from fastmcp_aggregator.routing.table import RouteTable

ListedRoutes = list[tuple[str, Route]]


class Part:
    """The share of one server in a group: its tools by public name, with their own names; numbers of the rest."""

    def __init__(self, listed: Mapping[Kind, ListedRoutes]) -> None:
        self.listed = listed
        self.tool_count = len(listed.get(Kind.TOOL, ()))
        self.resources = len(listed.get(Kind.RESOURCE, ())) + len(listed.get(Kind.TEMPLATE, ()))
        self.prompts = len(listed.get(Kind.PROMPT, ()))

    @cached_property
    def tools(self) -> dict[str, str]:
        return {public: route.original for public, route in self.listed.get(Kind.TOOL, ())}

    @cached_property
    def tool_names(self) -> Raw:
        """The public names of its tools, as JSON."""
        return Raw(encode([public for public, _ in self.listed.get(Kind.TOOL, ())]))

    def has_tools_of(self, other: Part) -> bool:
        mine, others = self.listed.get(Kind.TOOL, []), other.listed.get(Kind.TOOL, [])
        return mine is others or [(name, route.component) for name, route in mine] == [
            (name, route.component) for name, route in others
        ]


_NOTHING = Part({})


@dataclass(frozen=True, slots=True)
class Contents:
    """The components of a group, by server key. `edition` changes with any of its tools."""

    edition: str
    parts: Mapping[str, Part]

    def of(self, key: str) -> Part:
        return self.parts.get(key, _NOTHING)


class KnownContents:
    """A cache of the groups' contents, rebuilt when their route tables change."""

    def __init__(self, rule: NameRule) -> None:
        """`rule` is how names are listed on the JSON API."""
        self._rule = rule
        self._known: dict[str, tuple[RouteTable, Contents]] = {}

    def of(self, group_id: str, table: RouteTable) -> Contents:
        known = self._known.get(group_id)
        if known is None or known[0] is not table:
            before = None if known is None else known[1]
            parts = _read(table, self._rule, {} if before is None else before.parts)
            is_same = before is not None and _have_same_tools(parts, before.parts)
            edition = before.edition if before is not None and is_same else secrets.token_hex(4)
            known = self._known[group_id] = (table, Contents(edition, parts))
        return known[1]

    def keep(self, group_ids: Iterable[str]) -> None:
        """Forget the groups that are gone."""
        for group_id in self._known.keys() - set(group_ids):
            del self._known[group_id]


def _read(table: RouteTable, rule: NameRule, before: Mapping[str, Part]) -> dict[str, Part]:
    """The parts by server; the same object as before where nothing has changed."""
    found: dict[str, dict[Kind, ListedRoutes]] = {}
    for kind in Kind:
        for child, listed in table.named_of_each(kind, rule):
            if child.stands_for_instances:  # the way to log in is none of its tools
                continue
            found.setdefault(child.key, {})[kind] = listed
    return {key: _part(listed, before.get(key)) for key, listed in found.items()}


def _part(listed: Mapping[Kind, ListedRoutes], before: Part | None) -> Part:
    is_same = before is not None and all(listed[kind] is before.listed.get(kind) for kind in listed)
    return before if before is not None and is_same else Part(listed)


def _have_same_tools(parts: Mapping[str, Part], before: Mapping[str, Part]) -> bool:
    mine, others = ([key for key, part in each.items() if part.tool_count] for each in (parts, before))
    return mine == others and all(parts[key] is before[key] or parts[key].has_tools_of(before[key]) for key in mine)
