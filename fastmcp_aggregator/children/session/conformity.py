"""Validation of listed components against the protocol's schemas.

A client checks a list as a whole, so one odd component of one child would take the components of all children from it.
So each must have the form of the version that its child speaks, and, as far as they see it, that of legacy clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from mcp_types.methods import SERVER_RESULTS
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind, KindSpec
from fastmcp_aggregator.protocol.legacy import tool_for_legacy

logger = logging.getLogger(__name__)

_NAMED = 3
"""Components that a report names."""
_ENVELOPE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""The other fields of a result of 2026-07-28; earlier versions have none of them and do not mind them."""


async def conforming(
    server_key: str, kind: Kind, items: Sequence[Any], protocol_version: str, *, turn: float = 0.003
) -> list[Any]:
    """The items that a child that speaks this version may list. The others are left out and reported.

    After `turn` seconds of checking others get their turn.
    """
    kept, faults, began = [], [], perf_counter()
    for item in items:
        fault = _fault_of(kind, item, protocol_version)
        if fault is None:
            kept.append(item)
        else:
            faults.append(fault)
        if perf_counter() - began > turn:
            await asyncio.sleep(0)
            began = perf_counter()
    if faults:
        named = "; ".join(faults[:_NAMED]) + ("; …" if len(faults) > _NAMED else "")
        logger.warning(
            "server %r lists %d of its %s not as MCP prescribes; left out: %s", server_key, len(faults), kind, named
        )
    return kept


def _fault_of(kind: Kind, item: Any, protocol_version: str) -> str | None:
    """The fault of an item, if any."""
    spec = SPECS[kind]
    try:
        _validate(spec, item, protocol_version)
        if protocol_version in MODERN_PROTOCOL_VERSIONS:
            _validate(spec, tool_for_legacy(item) if kind is Kind.TOOL else item, LATEST_HANDSHAKE_VERSION)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = item.get(spec.id_field) if isinstance(item, dict) else item
        path = ".".join(str(step) for step in fault["loc"][2:])
        return f"{name!r:.60}" + (f" ({path}: {fault['msg']})" if path else f" ({fault['msg']})")
    return None


def _validate(spec: KindSpec, item: Any, protocol_version: str) -> None:
    # `validate_server_result` writes it all out as well, which takes as long again.
    model: Any = SERVER_RESULTS[spec.list_method, protocol_version]
    model.model_validate({spec.list_key: [item], **_ENVELOPE}, by_name=False)
