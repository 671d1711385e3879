"""Server capabilities: the union of what the children declare. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastmcp_aggregator.protocol import extensions
from fastmcp_aggregator.protocol.methods import LIST_CHANGED, capabilities_of

Capabilities = Mapping[str, Any]

RELAYED: Capabilities = {**capabilities_of("server"), "extensions": extensions.RELAYED}
"""Everything that can be passed on, and so may turn out to be offered."""
_KEPT = frozenset({*RELAYED, "experimental"})
"""Tasks are not."""


def union(of_children: Iterable[Capabilities]) -> dict[str, Any]:
    """Everything that at least one child can do, and not more. That a list changed, we tell for every child."""
    together: dict[str, Any] = {}
    for capabilities in of_children:
        for name, value in capabilities.items():
            if name in _KEPT and isinstance(value, Mapping):
                together[name] = _merged(together.get(name, {}), value)
    for name in LIST_CHANGED:
        if name in together:
            together[name]["listChanged"] = True
    return together


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A flag is set if either sets it; of other values the first stays."""
    merged = dict(one)
    for name, value in other.items():
        merged[name] = merged.get(name) or value
    return merged
