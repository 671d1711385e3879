"""Reading a child's whole catalogue: every kind it declares, every page."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from fastmcp_aggregator.catalogue.snapshot import SPECS, CacheHint, Catalogue, Component, Kind, KindSpec, usable
from fastmcp_aggregator.children.conformity import conforming
from fastmcp_aggregator.children.session import ChildSession

logger = logging.getLogger(__name__)

_PAGE_LIMIT = 1000


async def read_catalogue(
    server_key: str, session: ChildSession, *, version: int, max_tools: int | None = None
) -> Catalogue:
    """List everything the child offers, of its tools at most `max_tools`. The caller sets the deadline.

    Raises:
        MCPError: the child answered with an error, or the connection ended.
    """
    kinds = [kind for kind in Kind if _declares(session.capabilities, SPECS[kind].capability)]
    lists = await asyncio.gather(*(_read_kind(server_key, session, kind) for kind in kinds))
    components = {kind: items for kind, (items, _) in zip(kinds, lists, strict=True)}
    tools = components.get(Kind.TOOL, ())
    if max_tools is not None and len(tools) > max_tools:
        logger.warning("server %r lists %d tools; the first %d are used", server_key, len(tools), max_tools)
        tools = components[Kind.TOOL] = tools[:max_tools]
    for tool in tools:
        if isinstance(schema := tool.get("inputSchema"), dict):
            session.mirror_headers(tool["name"], schema)
    hints = {kind: hint for kind, (_, hint) in zip(kinds, lists, strict=True) if hint is not None}
    return Catalogue(version, components, session.instructions, session.capabilities, hints)


def _declares(capabilities: dict[str, Any], name: str) -> bool:
    """Whether to ask for it. A child that declares nothing at all is asked for everything."""
    known = {spec.capability for spec in SPECS.values()}
    return name in capabilities or not known & capabilities.keys()


async def _read_kind(
    server_key: str, session: ChildSession, kind: Kind
) -> tuple[tuple[Component, ...], CacheHint | None]:
    try:
        items, hint = await _read_pages(session, SPECS[kind])
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:
            return (), None  # servers answer this for what they don't have
        if kind is Kind.TOOL or session.is_over(error):
            raise
        logger.warning("server %r cannot list its %s, which are left out: %s", server_key, kind, error.message)
        return (), None
    return usable(server_key, kind, await conforming(server_key, kind, items, session.protocol_version)), hint


async def _read_pages(session: ChildSession, spec: KindSpec) -> tuple[list[Any], CacheHint | None]:
    """All items, and what the first page says of how long they may be kept."""
    items: list[Any] = []
    seen: set[str] = set()
    params: dict[str, str] | None = None
    hint: CacheHint | None = None
    while len(seen) < _PAGE_LIMIT:
        page = await session.request(spec.list_method, params)
        hint = hint or _hint_of(page)
        listed = page.get(spec.list_key)
        items += listed if isinstance(listed, list) else []
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen:
            break
        seen.add(cursor)
        params = {"cursor": cursor}
    return items, hint


def _hint_of(page: dict[str, Any]) -> CacheHint | None:
    ttl = page.get("ttlMs")
    if not isinstance(ttl, int) or isinstance(ttl, bool) or "cacheScope" not in page:
        return None
    return CacheHint(max(0, ttl), page["cacheScope"] == "public")
