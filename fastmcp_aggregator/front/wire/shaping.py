"""Result envelopes by protocol era. Pure.

The envelope differs between the eras: 2026-07-28 has `resultType`, cache hints and a stamp of the server's identity;
earlier versions have none of them, and know structured content only as objects (`protocol/legacy.py`). What a child
put into its result otherwise is never touched.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from mcp_types import SERVER_INFO_META_KEY
from mcp_types.methods import is_input_required
from msgspec import Raw

from fastmcp_aggregator.protocol.legacy import result_for_legacy, tools_for_legacy
from fastmcp_aggregator.protocol.methods import METHODS, TOOLS_CALL, TOOLS_LIST

_CACHEABLE = frozenset(name for name, row in METHODS.items() if row.is_cacheable)
_MODERN_ONLY = frozenset({"resultType", "ttlMs", "cacheScope"})


def for_modern_client(
    method: str, result: dict[str, Any], server_info: dict[str, Any] | Raw, account: Hashable = None
) -> dict[str, Any]:
    """The result for a client that speaks 2026-07-28. The stamp names us: it describes this connection.

    What an account may use, others may not: caches keep it for that account alone, whatever the child says.
    """
    shaped = {"resultType": "complete", **result}
    if method in _CACHEABLE and not is_input_required(result):
        shaped = {"ttlMs": 0, "cacheScope": "private", **shaped}
    if account is not None and "cacheScope" in shaped:
        shaped["cacheScope"] = "private"
    meta = result.get("_meta")
    shaped["_meta"] = {**(meta if isinstance(meta, dict) else {}), SERVER_INFO_META_KEY: server_info}
    return shaped


def for_legacy_client(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """The result for a client that speaks 2025-11-25 or earlier."""
    shaped = result
    if method == TOOLS_CALL.name and "structuredContent" in result:
        shaped = result_for_legacy(shaped)
    elif method == TOOLS_LIST.name and (tools := tools_for_legacy(shaped["tools"])) is not shaped["tools"]:
        shaped = {**shaped, "tools": tools}
    if not _MODERN_ONLY.isdisjoint(shaped):
        shaped = {key: value for key, value in shaped.items() if key not in _MODERN_ONLY}
    meta = result.get("_meta")
    if not isinstance(meta, dict) or SERVER_INFO_META_KEY not in meta:
        return shaped
    kept = {key: value for key, value in meta.items() if key != SERVER_INFO_META_KEY}
    unstamped = {key: value for key, value in shaped.items() if key != "_meta"}
    return {**unstamped, "_meta": kept} if kept else unstamped
