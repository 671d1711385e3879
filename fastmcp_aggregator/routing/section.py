"""The section of one child in a route table: what it offers, by name, and how that is listed.

It is made of this child's offer alone, and stays the same object while that does, whatever other children do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.naming.rules import HASH_DIGITS, SEPARATORS, NameRule, every_spelling, hash_of, is_hashed
from fastmcp_aggregator.naming.uris import public_uri
from fastmcp_aggregator.protocol.legacy import tools_for_legacy
from fastmcp_aggregator.protocol.raw_json import encode
from fastmcp_aggregator.routing.addresses import Publish, publish_addresses
from fastmcp_aggregator.routing.route import Route

NAMED = (Kind.TOOL, Kind.PROMPT)


class Named(NamedTuple):
    """Components under their public names, in the child's order, and the places of those whose name can be another's,
    too, whatever the keys of other children are.
    """

    pairs: list[tuple[str, Route]]
    doubtful: frozenset[int]


class Section:
    """What one child has in a table. `basis` is all that the routes follow from."""

    def __init__(
        self, key: str, basis: Any, routes: Mapping[Kind, Sequence[Route]], publish: Publish, *, prefix: bool
    ) -> None:
        self.basis = basis
        self.routes = routes
        self._key = key
        self._publish = publish
        self._prefix = prefix
        self._by_name: dict[Kind, dict[str, int]] = {kind: {} for kind in Kind}
        """The place of a component among those of its kind; of two under one name, that of the first."""
        for kind, found in routes.items():
            by_name = self._by_name[kind]
            for place, route in enumerate(found):
                by_name.setdefault(route.name, place)
        self._listed: dict[tuple[Kind, NameRule], Named] = {}
        self._items: dict[tuple[Kind, NameRule], list[dict[str, Any]]] = {}
        self._texts: dict[tuple[Kind, NameRule, bool], bytes] = {}

    def shown(self, kind: Kind) -> list[Any]:
        """What clients see of a kind, to be compared."""
        return [(route.original, route.renamed, route.component) for route in self.routes[kind]]

    def place(self, kind: Kind, name: str) -> int | None:
        """The place of what the child offers under a name without a prefix, or an address of its own."""
        return self._by_name[kind].get(name)

    def spelled(self, kind: Kind, name: str) -> Iterator[int]:
        """The places of tools or prompts of which this is a spelling with the key."""
        for separator in SEPARATORS:
            head = self._key + separator
            place = self.place(kind, name[len(head) :]) if name.startswith(head) else None
            if place is not None:
                yield place
        yield from self._hashed(kind, name, prefix=True)

    def bare(self, kind: Kind, name: str) -> Iterator[int]:
        """The places of tools or prompts of which this is a spelling without the key."""
        place = self.place(kind, name)
        if place is not None:
            yield place
        yield from self._hashed(kind, name, prefix=False)

    @cached_property
    def addresses(self) -> dict[Kind, dict[str, int]]:
        """The places of resources and templates by public address."""
        return {
            kind: {self._address_of(route): place for place, route in enumerate(self.routes[kind])}
            for kind in (Kind.RESOURCE, Kind.TEMPLATE)
        }

    @cached_property
    def rewritten(self) -> dict[Kind, dict[str, int]]:
        """The same by an address as FastMCP's models write it, where that is another."""
        found: dict[Kind, dict[str, int]] = {}
        for kind, places in self.addresses.items():
            written = ((_as_pydantic_writes(address), address, place) for address, place in places.items())
            found[kind] = {}
            for other, address, place in written:
                if other != address:
                    found[kind].setdefault(other, place)
        return found

    def without_key(self, kind: Kind) -> Iterable[str]:
        """The names and addresses, as they are spelled first, that do not carry the key."""
        if kind in NAMED:
            return self._by_name[kind]
        if self._prefix:
            routes = self.routes[kind]
            return (each for each, place in self.addresses[kind].items() if self._is_keyless(each, routes[place]))
        return chain(self.addresses[kind], self.rewritten[kind])

    def named(self, kind: Kind, rule: NameRule) -> Named:
        """How components are listed under a rule, as far as no other child has their names."""
        named = self._listed.get((kind, rule))
        if named is None:
            named = self._listed[kind, rule] = self._name(kind, rule)
        return named

    def items(self, kind: Kind, rule: NameRule) -> list[dict[str, Any]]:
        """The same as wire objects."""
        items = self._items.get((kind, rule))
        if items is None:
            id_field = SPECS[kind].id_field
            items = self._items[kind, rule] = [
                publish_addresses({**route.component, id_field: public}, self._publish)
                for public, route in self.named(kind, rule).pairs
            ]
        return items

    def text(self, kind: Kind, rule: NameRule, *, is_modern: bool) -> bytes:
        """The same as JSON, for clients of one era, without the brackets.

        Raises:
            ValueError: it cannot be written as such.
        """
        text = self._texts.get((kind, rule, is_modern))
        if text is None:
            text = self._texts[kind, rule, is_modern] = text_of(kind, self.items(kind, rule), is_modern=is_modern)
        return text

    def _name(self, kind: Kind, rule: NameRule) -> Named:
        routes = self.routes[kind]
        if kind not in NAMED:
            pairs = [(self._address_of(route), route) for route in routes]
            keyless = (place for place, (public, route) in enumerate(pairs) if self._is_keyless(public, route))
            return Named(pairs, frozenset(keyless))
        pairs = [(rule.public_name(self._key, name), routes[place]) for name, place in self._by_name[kind].items()]
        hashed = (place for place, (public, _) in enumerate(pairs) if rule.is_strict and is_hashed(public))
        return Named(pairs, frozenset(hashed))

    def _is_keyless(self, address: str, route: Route) -> bool:
        """Whether it has an address that could carry the key, and does not."""
        return self._prefix and address == route.original

    def _address_of(self, route: Route) -> str:
        return public_uri(self._key, route.original) if self._prefix else route.original

    def _hashed(self, kind: Kind, name: str, *, prefix: bool) -> Iterator[int]:
        for place in self._by_hash[kind].get(name[-HASH_DIGITS:], ()) if is_hashed(name) else ():
            route = self.routes[kind][place]
            if name in every_spelling(self._key, route.name, prefix=prefix):
                yield place

    @cached_property
    def _by_hash(self) -> dict[Kind, dict[str, list[int]]]:
        found: dict[Kind, dict[str, list[int]]] = {kind: {} for kind in Kind}
        for kind in NAMED:
            for name, place in self._by_name[kind].items():
                found[kind].setdefault(hash_of(self._key, name), []).append(place)
        return found


def text_of(kind: Kind, items: list[dict[str, Any]], *, is_modern: bool) -> bytes:
    """Wire objects as JSON, without the brackets around them.

    Raises:
        ValueError: they cannot be written as such.
    """
    return encode(tools_for_legacy(items) if kind is Kind.TOOL and not is_modern else items)[1:-1]


def _as_pydantic_writes(uri: str) -> str:
    """`file://key//path` becomes `file://key/path` in FastMCP's models, and so it comes back from their readers."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}://{rest.replace('//', '/', 1)}" if separator and scheme.lower() == "file" else uri
