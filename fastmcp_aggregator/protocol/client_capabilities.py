"""Client capabilities, as plain objects. Pure.

A client declares that it can be asked for sampling, elicitation or roots; a child must not ask for anything else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fastmcp_aggregator.protocol.methods import SERVER_REQUESTS, capabilities_of

Capabilities = Mapping[str, Any]

RELAYED: Capabilities = capabilities_of("client")
"""The capabilities that can be passed on."""
ASKABLE = frozenset(method.capability for method in SERVER_REQUESTS.values())
"""Requests that a client can declare to answer."""


def kind_of(declared: Capabilities, *, is_legacy: bool) -> str:
    """The kind of client that a child sees which is told these capabilities: what it lists may depend on them."""
    text = json.dumps([declared, is_legacy], sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def required_for(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The capability that a server's request requires of the client, in the form in which a client declares it."""
    row = SERVER_REQUESTS[method]
    return {row.capability: row.required_parts(params)}


def has(declared: Capabilities, required: Capabilities) -> bool:
    """True if `declared` satisfies `required`."""
    (name, parts) = next(iter(required.items()))
    have = declared.get(name)
    if not isinstance(have, Mapping):
        return False
    if parts.keys() == {"form"} and not have.keys() & {"form", "url"}:
        return True  # before 2025-11-25 there was one mode, and nothing in the capability
    return all(isinstance(have.get(part), Mapping) for part in parts)
