"""The section of one child in a route table: what it offers, by name, and how that is listed.

It is made of this child's offer alone, and stays the same object while that does, whatever other children do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.naming.rules import HASH_DIGITS, SEPARATORS, NameRule, every_spelling, hash_of, is_hashed
from fastmcp_aggregator.naming.uris import (
    is_without_key,
    public_uri,
    split_public_uri,
    written_by_pydantic_as,
)
from fastmcp_aggregator.protocol.legacy import tools_for_legacy
from fastmcp_aggregator.protocol.raw_json import encode
from fastmcp_aggregator.routing.addresses import Publish, publish_addresses
from fastmcp_aggregator.routing.route import Route, Routes
from fastmcp_aggregator.routing.steps import Making, made_together

NAMED = (Kind.TOOL, Kind.PROMPT)
_STEP = 50
"""Components of which a part of a list is made at once."""


class Named(NamedTuple):
    """Components under their public names, in the child's order, and the indices of those whose name can be another's,
    too, whatever the keys of other children are.
    """

    pairs: list[tuple[str, Route]]
    doubtful: frozenset[int]


class Section:
    """The share of one child in a table. `basis` is all that the routes follow from."""

    def __init__(
        self, key: str, basis: Any, routes: Mapping[Kind, Sequence[Route]], publish: Publish, *, prefix: bool
    ) -> None:
        self.basis = basis
        self.routes = routes
        self._key = key
        self._publish = publish
        self._prefix = prefix
        self._by_name: dict[Kind, dict[str, int]] = {}
        self._listed: dict[tuple[Kind, NameRule], Named] = {}
        self._items: dict[tuple[Kind, NameRule], list[dict[str, Any]]] = {}
        self._texts: dict[tuple[Kind, NameRule, bool], bytes] = {}
        self._making: Making = {}

    def shown(self, kind: Kind) -> list[Any]:
        """The parts of a kind that clients see, to be compared."""
        return [(route.original, route.renamed, route.component) for route in self.routes[kind]]

    def index(self, kind: Kind, name: str) -> int | None:
        """The index of a component by its name without a prefix, or its own address."""
        return self._indices(kind).get(name)

    def spelled(self, kind: Kind, name: str) -> Iterator[int]:
        """The indices of tools or prompts of which this is a spelling with the key."""
        for separator in SEPARATORS:
            head = self._key + separator
            index = self.index(kind, name[len(head) :]) if name.startswith(head) else None
            if index is not None:
                yield index
        yield from self._hashed(kind, name, prefix=True)

    def bare(self, kind: Kind, name: str) -> Iterator[int]:
        """The indices of tools or prompts of which this is a spelling without the key."""
        index = self.index(kind, name)
        if index is not None:
            yield index
        yield from self._hashed(kind, name, prefix=False)

    def addressed(self, kind: Kind, address: str) -> int | None:
        """The index of a resource or template by its public address."""
        if not self._prefix:
            return self.index(kind, address)
        parts = split_public_uri(address)
        if parts is None:
            return self.index(kind, address) if is_without_key(address) else None
        return self.index(kind, parts[1]) if parts[0] == self._key else None

    def rewritten(self, kind: Kind, address: str) -> int | None:
        """The same by the address as FastMCP's models write it, where that is another."""
        found = (self.addressed(kind, each) for each in written_by_pydantic_as(address))
        return min((index for index in found if index is not None), default=None)

    def has_without_key(self, kind: Kind, name: str) -> bool:
        """True if something has this name or address, or is written so, and it does not carry the key."""
        if self.index(kind, name) is not None:
            return kind in NAMED or not self._prefix or is_without_key(name)
        return kind not in NAMED and not self._prefix and self.rewritten(kind, name) is not None

    def named(self, kind: Kind, rule: NameRule) -> Named:
        """Components under their names by a rule, as far as no other child has their names."""
        for _ in self._naming(kind, rule):
            pass
        return self._listed[kind, rule]

    def items(self, kind: Kind, rule: NameRule) -> list[dict[str, Any]]:
        """The listed components as wire objects."""
        for _ in self._publishing(kind, rule):
            pass
        return self._items[kind, rule]

    def text(self, kind: Kind, rule: NameRule, *, is_modern: bool) -> bytes:
        """The same as JSON, for clients of one era, without the brackets.

        Raises:
            ValueError: it cannot be written as such.
        """
        for _ in self._writing(kind, rule, is_modern=is_modern):
            pass
        return self._texts[kind, rule, is_modern]

    def steps(self, kind: Kind, rule: NameRule, *, is_modern: bool | None = None) -> Iterator[None]:
        """Make all this in steps; the text, if it is for clients of an era.

        Raises:
            ValueError: it cannot be written as such.
        """
        if is_modern is None:
            return self._publishing(kind, rule)
        return self._writing(kind, rule, is_modern=is_modern)

    def _naming(self, kind: Kind, rule: NameRule) -> Iterator[None]:
        return made_together(self._making, self._listed, (kind, rule), lambda: self._name(kind, rule))

    def _publishing(self, kind: Kind, rule: NameRule) -> Iterator[None]:
        return made_together(self._making, self._items, (kind, rule), lambda: self._publish_all(kind, rule))

    def _writing(self, kind: Kind, rule: NameRule, *, is_modern: bool) -> Iterator[None]:
        key = (kind, rule, is_modern)
        return made_together(self._making, self._texts, key, lambda: self._write(kind, rule, is_modern=is_modern))

    def _name(self, kind: Kind, rule: NameRule) -> Iterator[None]:
        routes = self.routes[kind]
        pairs: list[tuple[str, Route]] = []
        doubtful: list[int] = []
        indices = self._indices(kind).values() if kind in NAMED else range(len(routes))
        for number, index in enumerate(indices):
            route = routes[index]
            public = rule.public_name(self._key, route.name) if kind in NAMED else self._address_of(route)
            is_doubtful = rule.is_strict and is_hashed(public) if kind in NAMED else self._is_keyless(public, route)
            if is_doubtful:
                doubtful.append(number)
            pairs.append((public, route))
            if number % _STEP == _STEP - 1:
                yield
        self._listed[kind, rule] = Named(pairs, frozenset(doubtful))

    def _publish_all(self, kind: Kind, rule: NameRule) -> Iterator[None]:
        yield from self._naming(kind, rule)
        id_field, items = SPECS[kind].id_field, []
        for number, (public, route) in enumerate(self._listed[kind, rule].pairs):
            items.append(publish_addresses({**route.component, id_field: public}, self._publish))
            if number % _STEP == _STEP - 1:
                yield
        self._items[kind, rule] = items

    def _write(self, kind: Kind, rule: NameRule, *, is_modern: bool) -> Iterator[None]:
        yield from self._publishing(kind, rule)
        items, texts = self._items[kind, rule], []
        for start in range(0, len(items), _STEP):
            texts.append(text_of(kind, items[start : start + _STEP], is_modern=is_modern))
            yield
        self._texts[kind, rule, is_modern] = b",".join(texts)

    def _indices(self, kind: Kind) -> dict[str, int]:
        """The index of each component among those of its kind, by name; of two under one, that of the first."""
        indices = self._by_name.get(kind)
        if indices is None:
            routes = self.routes[kind]
            names = routes.names() if isinstance(routes, Routes) else [route.name for route in routes]
            indices = dict(zip(names, range(len(names)), strict=True))
            if len(indices) < len(names):
                indices = {}
                for index, name in enumerate(names):
                    indices.setdefault(name, index)
            self._by_name[kind] = indices
        return indices

    def _is_keyless(self, address: str, route: Route) -> bool:
        """True if it has an address that could carry the key, and does not."""
        return self._prefix and address == route.original

    def _address_of(self, route: Route) -> str:
        return public_uri(self._key, route.original) if self._prefix else route.original

    def _hashed(self, kind: Kind, name: str, *, prefix: bool) -> Iterator[int]:
        for index in self._by_hash[kind].get(name[-HASH_DIGITS:], ()) if is_hashed(name) else ():
            route = self.routes[kind][index]
            if name in every_spelling(self._key, route.name, prefix=prefix):
                yield index

    @cached_property
    def _by_hash(self) -> dict[Kind, dict[str, list[int]]]:
        found: dict[Kind, dict[str, list[int]]] = {kind: {} for kind in Kind}
        for kind in NAMED:
            for name, index in self._indices(kind).items():
                found[kind].setdefault(hash_of(self._key, name), []).append(index)
        return found


def text_of(kind: Kind, items: list[dict[str, Any]], *, is_modern: bool) -> bytes:
    """Wire objects as JSON, without the brackets around them. Raises ValueError: they cannot be written as such."""
    return encode(tools_for_legacy(items) if kind is Kind.TOOL and not is_modern else items)[1:-1]
