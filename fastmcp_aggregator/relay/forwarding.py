"""One request on its way from a caller to a child: what goes along, and what stays here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.session import ServerSession
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session import OnProgress

_CONNECTION_META = frozenset(
    {
        PROTOCOL_VERSION_META_KEY,
        CLIENT_INFO_META_KEY,
        CLIENT_CAPABILITIES_META_KEY,
        LOG_LEVEL_META_KEY,
        # The session puts a token of its own in its place, so that two callers' tokens never meet.
        "progressToken",
    }
)
"""Request `_meta` that describes the caller's connection to us; the child's session has its own."""

_MODERN_PARAMS = ("inputResponses", "requestState")


async def forward(
    child: Child,
    method: str,
    params: Mapping[str, Any],
    address: Mapping[str, str],
    *,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Send a caller's request to a child, with the child's own name or URI in `address`; its result as it came.

    Raises:
        ChildServerError: the child cannot be asked, or was lost while it was asked.
        MCPError: the child's own error, unchanged.
    """
    forwarded = {**params, **address}
    # The aggregator declares no tasks, and then this is to be ignored (2025-11-25, tasks): nobody could ask for the
    # task that the child would make of it.
    forwarded.pop("task", None)
    meta = forwarded.pop("_meta", None) or {}
    if kept := {key: value for key, value in meta.items() if key not in _CONNECTION_META}:
        forwarded["_meta"] = kept
    if child.session is not None and child.session.era == "legacy":
        for name in _MODERN_PARAMS:
            forwarded.pop(name, None)
    return await child.request(method, forwarded, on_progress=on_progress)


def report_to(session: ServerSession) -> OnProgress:
    """Progress of a child's request, reported on the caller's request under the caller's own token."""

    async def report(progress: float, total: float | None, message: str | None) -> None:
        await session.report_progress(progress, total, message)

    return report


def wants_progress(params: Mapping[str, Any]) -> bool:
    """Whether the caller gave a token for progress notifications."""
    meta = params.get("_meta")
    return isinstance(meta, Mapping) and meta.get("progressToken") is not None
