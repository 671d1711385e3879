"""The document of one server's catalogues, as it stands in a file: a catalogue for each kind of client. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, TypeVar

import msgspec

from fastmcp_aggregator.catalogue.snapshot import CacheHint, Catalogue, Kind, ids_of, usable

_FORMAT = 2
"""A document of another one is not read."""
MOST_KINDS = 4
"""Kinds of clients whose catalogues are kept; those that came last."""
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class KnownCatalogue:
    """The last known catalogue of a server, and its version of the protocol."""

    catalogue: Catalogue
    protocol_version: str
    era: Literal["legacy", "modern"]


T = TypeVar("T")
KnownCatalogues = Mapping[str, KnownCatalogue]
"""Catalogues by the kind of client, the last one last."""


@dataclass(frozen=True, slots=True)
class Known:
    """The content of a document: catalogues, and the evidence that the server has shown of itself."""

    by_kind: KnownCatalogues
    shown: frozenset[str] = frozenset()

    @property
    def lists_by_client(self) -> bool:
        """True if kinds of clients were shown lists of other components, in one version of the protocol."""
        return any(
            one.protocol_version == other.protocol_version
            and any(ids_of(kind, one.catalogue.of(kind)) != ids_of(kind, other.catalogue.of(kind)) for kind in Kind)
            for one, other in combinations(self.by_kind.values(), 2)
        )


class UnusableDocument(Exception):
    """It says why it cannot be used."""


class _Listed(msgspec.Struct):
    era: Literal["legacy", "modern"]
    protocol_version: str
    instructions: str | None
    capabilities: dict[str, Any]
    components: dict[Kind, list[dict[str, Any]]]
    hints: dict[Kind, int]
    header_schemas: dict[str, dict[str, Any]]
    withheld: list[str] | None
    left_out: dict[Kind, list[str] | None]


class _Document(msgspec.Struct):
    format: int
    server: str
    fingerprint: str
    kinds: dict[str, _Listed]
    shown: list[str] = []


class Head(msgspec.Struct):
    """The identity of the server that a document is about."""

    format: int
    server: str
    fingerprint: str


def encoded(server_key: str, fingerprint: str, known: Known) -> bytes:
    """The document. Raises ValueError: something in it cannot be written as JSON."""
    kinds = {kind: _listed(each) for kind, each in list(known.by_kind.items())[-MOST_KINDS:]}
    return msgspec.json.encode(_Document(_FORMAT, server_key, fingerprint, kinds, sorted(known.shown)[:_MOST_SHOWN]))


def decoded(data: bytes, server_key: str, fingerprint: str) -> Known:
    """The content of a document. Raises UnusableDocument: it is broken, of a later version, or another server's."""
    head = head_of(data)
    if (head.server, head.fingerprint) != (server_key, fingerprint):
        raise UnusableDocument("it is another server's")
    document = _decoded(data, _Document)
    kinds = list(document.kinds.items())[-MOST_KINDS:]
    by_kind = {kind: _known(server_key, listed) for kind, listed in kinds}
    return Known(by_kind, frozenset(document.shown[:_MOST_SHOWN]))


def head_of(data: bytes) -> Head:
    """The head of a document. Raises UnusableDocument: it is broken, or of a later version."""
    head = _decoded(data, Head)
    if head.format != _FORMAT:
        raise UnusableDocument(f"it is of another version ({head.format}) of fastmcp-aggregator")
    return head


def counts_of(data: bytes) -> dict[Kind, int]:
    """The number of components by kind, for the kind of client that came last."""
    kinds = _decoded(data, _Document).kinds
    last = list(kinds.values())[-1:]
    return {kind: len(items) for listed in last for kind, items in listed.components.items()}


def _decoded(data: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise UnusableDocument("it is damaged") from None


def _listed(known: KnownCatalogue) -> _Listed:
    catalogue = known.catalogue
    return _Listed(
        known.era,
        known.protocol_version,
        catalogue.instructions,
        dict(catalogue.capabilities),
        {kind: [dict(item) for item in items] for kind, items in catalogue.components.items()},
        {kind: hint.ttl_ms for kind, hint in catalogue.hints.items()},
        {name: dict(schema) for name, schema in catalogue.header_schemas.items()},
        None if catalogue.withheld is None else sorted(catalogue.withheld),
        {kind: None if ids is None else sorted(ids) for kind, ids in catalogue.left_out.items()},
    )


def _known(server_key: str, listed: _Listed) -> KnownCatalogue:
    catalogue = Catalogue(
        0,
        {kind: usable(server_key, kind, items) for kind, items in listed.components.items()},
        listed.instructions,
        listed.capabilities,
        {kind: CacheHint(ttl_ms) for kind, ttl_ms in listed.hints.items()},
        listed.header_schemas,
        None if listed.withheld is None else frozenset(listed.withheld),
        {kind: None if ids is None else frozenset(ids) for kind, ids in listed.left_out.items()},
    )
    return KnownCatalogue(catalogue, listed.protocol_version, listed.era)
