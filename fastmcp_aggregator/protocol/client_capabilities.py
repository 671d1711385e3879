"""What clients have declared that they can do, as plain objects. Pure.

A client declares that it can be asked for sampling, elicitation or roots; a child must not ask for anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastmcp_aggregator.protocol import extensions

Capabilities = Mapping[str, Any]

ASKABLE = frozenset({"sampling", "elicitation", "roots"})
"""What a client can be asked for."""


def for_child(declared: Any) -> dict[str, Any]:
    """A client's capabilities as a child is to see them: all but tasks and extensions that are not relayed."""
    if not isinstance(declared, Mapping):
        return {}
    kept = {name: value for name, value in declared.items() if name != "tasks" and isinstance(value, Mapping)}
    return extensions.with_relayed(kept)


def required_for(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The capability that a client needs to be asked this, in the form in which it would declare it."""
    if method == "roots/list":
        return {"roots": {}}
    if method == "elicitation/create":
        return {"elicitation": {"url" if params.get("mode") == "url" else "form": {}}}
    has_tools = params.get("tools") is not None or params.get("toolChoice") is not None
    return {"sampling": {"tools": {}} if has_tools else {}}


def has(declared: Capabilities, required: Capabilities) -> bool:
    """Whether a client that has declared this can be asked for what requires that."""
    (name, parts) = next(iter(required.items()))
    have = declared.get(name)
    if not isinstance(have, Mapping):
        return False
    if parts.keys() == {"form"} and not have.keys() & {"form", "url"}:
        return True  # before 2025-11-25 there was one mode, and nothing in the capability
    return all(isinstance(have.get(part), Mapping) for part in parts)
