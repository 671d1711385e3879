"""A protocol extension: what this program has to know to pass it on. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastmcp_aggregator.protocol.methods import BOTH, Era, Method

ExtensionSettings = Mapping[str, Any]
Item = dict[str, Any]
"""A result, or a listed component."""
Rewrite = Callable[[Item, Callable[[str], str]], Item]
"""Publishes the addresses of an item by the function that publishes one; the same item, if it has none."""


def publish_uri(item: Any, publish: Callable[[str], str]) -> Any:
    """An object with the address that it has published; anything else as it is."""
    if isinstance(item, dict) and isinstance(item.get("uri"), str):
        return {**item, "uri": publish(item["uri"])}
    return item


def _text_of(value: Any) -> str:
    """The same for values that JSON writes alike. To compare each with each takes long where two list very much."""
    return json.dumps(value, sort_keys=True)


def united(one: ExtensionSettings, other: ExtensionSettings) -> ExtensionSettings:
    """The settings of two servers as one: a flag is set if either sets it, lists are joined, else the first stays."""
    together = dict(one)
    for name, value in other.items():
        first = together.get(name)
        if isinstance(first, list) and isinstance(value, list):
            known = set(map(_text_of, first))
            together[name] = [*first, *(item for item in value if _text_of(item) not in known)]
        else:
            together[name] = first or value
    return together


@dataclass(frozen=True, slots=True)
class Extension:
    identifier: str
    eras: frozenset[Era] = BOTH
    """The eras in which it is declared, to clients and servers."""
    settings: ExtensionSettings = field(default_factory=dict)
    """The settings declared to clients before a server has declared its own."""
    merge: Callable[[ExtensionSettings, ExtensionSettings], ExtensionSettings] = united
    methods: tuple[Method, ...] = ()
    """The requests and notifications that it adds, as rows of the table of methods."""
    rewrites: Mapping[str, Rewrite] = field(default_factory=dict)
    """Rewrites the addresses in a method's result; for a list, in each item."""
