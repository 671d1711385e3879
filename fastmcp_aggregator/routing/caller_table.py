"""The route table of one principal, where some servers list to each caller what its own account sees.

It lies over the table of the other servers, which all principals share, and has routes of those servers alone, so what
it takes does not grow with what everybody sees. A name that both have is the shared one's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fastmcp_aggregator.catalogue.snapshot import SPECS, CacheHint, Catalogue, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.groups.policy import ToolFilter
from fastmcp_aggregator.naming.rules import SEPARATORS, NameRule
from fastmcp_aggregator.routing.route import Route
from fastmcp_aggregator.routing.section import Section
from fastmcp_aggregator.routing.table import Naming, RouteTable, offered
from fastmcp_aggregator.settings.sections import ToolChanges


class CallerTable(RouteTable):
    """One generation of one principal's routes."""

    def __init__(
        self,
        shared: RouteTable,
        children: Sequence[Child],
        names: Naming,
        tools: ToolFilter | None,
        changes: ToolChanges,
        withdrawn: Mapping[str, frozenset[str]],
        catalogues: Mapping[str, Catalogue],
        others: Collection[str],
    ) -> None:
        """`children` are those that list to each caller, and `catalogues` what they list to this one."""
        self._shared = shared
        super().__init__(children, names, tools, changes, withdrawn, catalogues, others=others)

    def find_uri(self, uri: str) -> tuple[Child, str] | None:
        listed = self.find(Kind.RESOURCE, uri) or self.find(Kind.TEMPLATE, uri)
        if listed is not None and listed.child.key in self._by_key:
            return super().find_uri(uri)
        return self._shared.find_uri(uri) or super().find_uri(uri)

    def owner_of_tool(self, server_key: str, name: str) -> Child | None:
        return self._shared.owner_of_tool(server_key, name) or super().owner_of_tool(server_key, name)

    def catalogue_of(self, child: Child) -> Catalogue | None:
        return super().catalogue_of(child) if child.key in self._by_key else self._shared.catalogue_of(child)

    def known_of(self, child: Child) -> Catalogue | None:
        return self._catalogues.get(child.key) if child.key in self._by_key else self._shared.known_of(child)

    def listing(self, kind: Kind, rule: NameRule) -> list[dict[str, Any]]:
        return list(chain.from_iterable(self.items_of_each(kind, rule)))

    def items_of_each(self, kind: Kind, rule: NameRule) -> Iterator[list[dict[str, Any]]]:
        yield from self._shared.items_of_each(kind, rule)
        yield from super().items_of_each(kind, rule)

    def named_of_each(self, kind: Kind, rule: NameRule) -> Iterator[tuple[Child, list[tuple[str, Route]]]]:
        yield from self._shared.named_of_each(kind, rule)
        yield from super().named_of_each(kind, rule)

    def steps(self, kind: Kind, rule: NameRule, *, is_modern: bool | None = None) -> Iterator[None]:
        yield from self._shared.steps(kind, rule, is_modern=is_modern)
        yield from super().steps(kind, rule, is_modern=is_modern)

    def names(self, kind: Kind, rule: NameRule) -> Iterator[str]:
        yield from self._shared.names(kind, rule)
        yield from super().names(kind, rule)

    def with_key(self, uri: str) -> Iterator[str]:
        yield from self._shared.with_key(uri)
        yield from super().with_key(uri)

    def cache_hint(self, kind: Kind) -> CacheHint:
        """No hint: one principal's lists may be cached for nobody else."""
        return CacheHint()

    def unknown(self, kind: Kind, name: str) -> Route | None:
        """The route of a name that may belong to a server at which the principal has no account yet; it is that
        server's own if, once there is one, it is listed.
        """
        key, mark, _ = name.partition(":")
        is_named = bool(mark) and (key in self._by_key or key in self._others)
        for child in self._children:
            start = next((child.key + each for each in SEPARATORS if name.startswith(child.key + each)), None)
            if start is None or child.key in self._catalogues or not self._prefix:
                continue
            if child.key != key if is_named else self.begins_like_another(name, child):
                continue
            changes = self._changes.get(child.key, {}) if kind is Kind.TOOL else {}
            given = name.removeprefix(start)
            original = next((old for old, change in changes.items() if change.name == given), given)
            change = changes.get(original)
            is_gone = original in self._withdrawn.get(child.key, ()) or (change is not None and change.hidden)
            is_here = kind is not Kind.TOOL or self._tools is None or self._tools.has(child.key, original)
            if original and is_here and not is_gone:
                return Route(child, original, {SPECS[kind].id_field: original}, publish=self.publisher(child))
        return None

    def sections(self) -> dict[str, Section]:
        return {**self._shared.sections(), **super().sections()}

    def owners(self, kind: Kind, name: str) -> list[str]:
        return [*self._shared.owners(kind, name), *super().owners(kind, name)]

    def unlisted(self, kind: Kind) -> list[str]:
        return [*self._shared.unlisted(kind), *super().unlisted(kind)]

    def served(self, kind: Kind) -> Iterator[Route]:
        yield from self._shared.served(kind)
        yield from super().served(kind)

    def texts_of_each(self, kind: Kind, rule: NameRule, *, is_modern: bool) -> Iterator[bytes]:
        yield from self._shared.texts_of_each(kind, rule, is_modern=is_modern)
        yield from super().texts_of_each(kind, rule, is_modern=is_modern)

    def _search(self, kind: Kind, name: str) -> Route | None:
        return self._shared.find(kind, name) or super()._search(kind, name)

    def _has_rivals(self, child: Child, kind: Kind) -> bool:
        """True: the parts that all share come first."""
        return True

    def _tools_of(self, child: Child) -> Iterator[Route]:
        """Where the principal has no account, the way to one, whatever a group has of the server's own tools."""
        if child.key in self._catalogues:
            yield from super()._tools_of(child)
            return
        for component in offered(child.catalogue, Kind.TOOL):
            yield Route(child, component["name"], component, publish=self.publisher(child))
