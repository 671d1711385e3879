"""What each group contains, as its own clients are listed it: whatever they are not shown, the page does not know."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.routing.table import Route, RouteTable


@dataclass(slots=True)
class Part:
    """What a group has of one server: its tools by public name, with their own names; numbers of the rest."""

    tools: dict[str, str] = field(default_factory=dict)
    resources: int = 0
    prompts: int = 0

    def add(self, kind: Kind, public: str, route: Route) -> None:
        """Count one more component."""
        if kind is Kind.TOOL:
            self.tools[public] = route.original
        elif kind is Kind.PROMPT:
            self.prompts += 1
        else:
            self.resources += 1


@dataclass(frozen=True, slots=True)
class Contents:
    """What a group has, by server key. `edition` is another one whenever one of its tools is."""

    edition: str
    parts: Mapping[str, Part]

    def of(self, key: str) -> Part:
        """What it has of one server."""
        return self.parts.get(key) or Part()


class KnownContents:
    """The contents of groups, made anew only when their route tables are others."""

    def __init__(self, rule: NameRule) -> None:
        """`rule` is how names are listed on the JSON face."""
        self._rule = rule
        self._known: dict[str, tuple[RouteTable, list[Any], Contents]] = {}

    def of(self, group_id: str, table: RouteTable) -> Contents:
        """What a group has now."""
        known = self._known.get(group_id)
        if known is None or known[0] is not table:
            tools, parts = _read(table, self._rule)
            is_same = known is not None and known[1] == tools
            edition = known[2].edition if known is not None and is_same else secrets.token_hex(4)
            known = self._known[group_id] = (table, tools, Contents(edition, parts))
        return known[2]

    def keep(self, group_ids: Iterable[str]) -> None:
        """Forget the groups that are gone."""
        for group_id in self._known.keys() - set(group_ids):
            del self._known[group_id]


def _read(table: RouteTable, rule: NameRule) -> tuple[list[Any], dict[str, Part]]:
    tools: list[Any] = []
    parts: dict[str, Part] = {}
    for kind in Kind:
        for public, route in table.named(kind, rule):
            parts.setdefault(route.child.key, Part()).add(kind, public, route)
            if kind is Kind.TOOL:
                tools.append((public, route.component))
    return tools, parts
