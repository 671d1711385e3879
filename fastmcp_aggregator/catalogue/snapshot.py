"""The catalogue: what one child offers, as an immutable snapshot of the JSON objects that it listed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from fastmcp_aggregator.naming.uris import fits_any, plain_uri
from fastmcp_aggregator.protocol.methods import (
    LIST_CHANGED,
    PROMPTS_GET,
    PROMPTS_LIST,
    RESOURCES_LIST,
    TEMPLATES_LIST,
    TOOLS_CALL,
    TOOLS_LIST,
    Method,
)

logger = logging.getLogger(__name__)

Component = Mapping[str, Any]


class Kind(StrEnum):
    """The four kinds of components; the value is the capability that announces them."""

    TOOL = "tools"
    RESOURCE = "resources"
    TEMPLATE = "templates"
    PROMPT = "prompts"


@dataclass(frozen=True, slots=True)
class KindSpec:
    """The fields and methods of a kind in the protocol."""

    list_method: str
    capability: str
    list_key: str
    id_field: str

    @classmethod
    def listed_by(cls, method: Method, list_key: str, id_field: str) -> KindSpec:
        return cls(method.name, method.capability, list_key, id_field)


SPECS: dict[Kind, KindSpec] = {
    Kind.TOOL: KindSpec.listed_by(TOOLS_LIST, "tools", "name"),
    Kind.RESOURCE: KindSpec.listed_by(RESOURCES_LIST, "resources", "uri"),
    Kind.TEMPLATE: KindSpec.listed_by(TEMPLATES_LIST, "resourceTemplates", "uriTemplate"),
    Kind.PROMPT: KindSpec.listed_by(PROMPTS_LIST, "prompts", "name"),
}
CHANGED_KINDS: Mapping[str, frozenset[Kind]] = {
    notification: frozenset(kind for kind, spec in SPECS.items() if spec.capability == capability)
    for capability, notification in LIST_CHANGED.items()
}
"""The kinds whose lists have changed, by the notification that says so."""


@dataclass(frozen=True, slots=True)
class CacheHint:
    """How long a list may be cached, in milliseconds: for who asked alone, since names depend on that."""

    ttl_ms: int = 0

    def as_fields(self) -> dict[str, Any]:
        """The fields of a result (2026-07-28)."""
        return {"ttlMs": self.ttl_ms, "cacheScope": "private"}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """One child's components by kind, in the child's order, and what else it says of itself."""

    version: int
    components: Mapping[Kind, tuple[Component, ...]] = field(default_factory=dict)
    instructions: str | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[Kind, CacheHint] = field(default_factory=dict)
    """Cache hints by kind, where the child gives them."""
    header_schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By tool, the part of its input schema that says which arguments are HTTP headers as well."""
    withheld: frozenset[str] | None = frozenset()
    """Addresses and templates that are listed, but were not approved, with their plain spellings; None: nothing of the
    child was.
    """
    left_out: Mapping[Kind, frozenset[str] | None] = field(default_factory=dict)
    """By kind, the ids of what the child offers as well and is not taken up; None: its list could not be read."""

    def withholds(self, uri: str) -> bool:
        """True if an address is not to be used, because its listed definition was not approved."""
        if not self.withheld:
            return self.withheld is None
        if uri in self.withheld:
            return True
        if any(item["uri"] == uri for item in self.of(Kind.RESOURCE)):
            return False
        plain = plain_uri(uri)
        if plain in self.withheld:
            return True
        if not any(fits_any(self.withheld, spelling, otherwise=True) for spelling in (uri, plain)):
            return False
        return not fits_any((item["uriTemplate"] for item in self.of(Kind.TEMPLATE)), uri, otherwise=False)

    def reduced_to(self, kept: Catalogue) -> Catalogue:
        """The kept parts of this catalogue, with the ids of the others."""
        left_out = dict(self.left_out)
        for kind in Kind:
            known = left_out.get(kind, frozenset())
            if known is None or kept.of(kind) is self.of(kind):
                continue
            if gone := ids_of(kind, self.of(kind)) - ids_of(kind, kept.of(kind)):
                left_out[kind] = known | gone
        return replace(kept, left_out=left_out)

    def of(self, kind: Kind) -> tuple[Component, ...]:
        return self.components.get(kind, ())

    def in_order_of(self, other: Catalogue | None) -> Catalogue:
        """The same, with each list that has the same components as the other's in the order of that one."""
        if other is None:
            return self
        kept = {kind: other.of(kind) for kind, items in self.components.items() if _same(kind, items, other.of(kind))}
        return replace(self, components={**self.components, **kept})

    def differences(self, other: Catalogue | None) -> frozenset[Kind]:
        other = other or Catalogue(0)
        return frozenset(
            kind
            for kind in Kind
            if self.of(kind) != other.of(kind) or self.left_out.get(kind) != other.left_out.get(kind)
        )


def ids_of(kind: Kind, items: Iterable[Any]) -> frozenset[str]:
    """The ids of listed items, as far as they have one."""
    found = (item.get(SPECS[kind].id_field) for item in items if isinstance(item, dict))
    return frozenset(id_ for id_ in found if isinstance(id_, str))


_DEFINED: Mapping[str, tuple[Kind, tuple[str, ...]]] = {
    TOOLS_CALL.name: (Kind.TOOL, ("inputSchema", "outputSchema")),
    PROMPTS_GET.name: (Kind.PROMPT, ("arguments",)),
}
"""By method, the kind of component that it names, and the part of the definition that a request has to fit."""


def definition_of(catalogue: Catalogue | None, method: str, params: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The listed definition that a request for a component was made to fit; None if it is not listed, or of another
    kind.
    """
    if catalogue is None or method not in _DEFINED:
        return None
    kind, parts = _DEFINED[method]
    listed = next((item for item in catalogue.of(kind) if item["name"] == params.get("name")), None)
    return None if listed is None else tuple(listed.get(part) for part in parts)


def _same(kind: Kind, items: Sequence[Component], others: Sequence[Component]) -> bool:
    """True if these are the same components, in any order."""
    id_field = SPECS[kind].id_field
    if len(items) != len(others):
        return False
    by_id = {item[id_field]: item for item in items}
    return all(item == by_id.get(item[id_field]) for item in others)


def usable(server_key: str, kind: Kind, items: Iterable[Any]) -> tuple[Component, ...]:
    """The listed items that can be served: objects with an id, each id once. Others are left out and reported."""
    id_field = SPECS[kind].id_field
    kept: dict[str, Component] = {}
    for item in items:
        name = item.get(id_field) if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            logger.warning("server %r lists one of its %s without %r; left out", server_key, kind, id_field)
        elif name in kept:
            logger.warning("server %r lists %r twice among its %s; the first is used", server_key, name, kind)
        else:
            kept[name] = item
    return tuple(kept.values())
