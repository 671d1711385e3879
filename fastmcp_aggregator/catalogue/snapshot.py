"""The catalogue: what one child offers, as an immutable snapshot of the JSON objects that it listed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fastmcp_aggregator.naming.uris import fits
from fastmcp_aggregator.protocol.methods import (
    LIST_CHANGED,
    PROMPTS_LIST,
    RESOURCES_LIST,
    TEMPLATES_LIST,
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
    """How a kind appears in the protocol."""

    list_method: str
    capability: str
    list_key: str
    id_field: str

    @classmethod
    def listed_by(cls, method: Method, list_key: str, id_field: str) -> KindSpec:
        """The kind that this method lists."""
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
    """For how many milliseconds something may be kept, and whether for others too."""

    ttl_ms: int = 0
    is_public: bool = False

    def as_fields(self) -> dict[str, Any]:
        """As it stands in a result (2026-07-28)."""
        return {"ttlMs": self.ttl_ms, "cacheScope": "public" if self.is_public else "private"}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """One child's components by kind, in the child's order, and what else it says of itself."""

    version: int
    components: Mapping[Kind, tuple[Component, ...]] = field(default_factory=dict)
    instructions: str | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[Kind, CacheHint] = field(default_factory=dict)
    """How long each list may be kept, where the child says so."""
    header_schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By tool, the part of its input schema that says which arguments are HTTP headers as well."""
    withheld: frozenset[str] | None = frozenset()
    """Addresses and templates that are listed, but were not approved; None: nothing of the child was."""

    def withholds(self, uri: str) -> bool:
        """Whether an address is not to be used, because what is listed for it was not approved."""
        if not self.withheld:
            return self.withheld is None
        if uri in self.withheld:
            return True
        if not any(fits(other, uri) for other in self.withheld):
            return False
        if any(item["uri"] == uri for item in self.of(Kind.RESOURCE)):
            return False
        return not any(fits(item["uriTemplate"], uri) for item in self.of(Kind.TEMPLATE))

    def of(self, kind: Kind) -> tuple[Component, ...]:
        """The components of one kind."""
        return self.components.get(kind, ())

    def differences(self, other: Catalogue | None) -> frozenset[Kind]:
        """The kinds in which the two differ."""
        return frozenset(kind for kind in Kind if self.of(kind) != (other.of(kind) if other else ()))


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
