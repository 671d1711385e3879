"""Reading a child's whole catalogue: every kind it declares, every page."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from fastmcp_aggregator.catalogue.snapshot import SPECS, Catalogue, Component, Kind, KindSpec, usable
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
    components = dict(zip(kinds, lists, strict=True))
    tools = components.get(Kind.TOOL, ())
    if max_tools is not None and len(tools) > max_tools:
        logger.warning("server %r lists %d tools; the first %d are used", server_key, len(tools), max_tools)
        tools = components[Kind.TOOL] = tools[:max_tools]
    for tool in tools:
        if isinstance(schema := tool.get("inputSchema"), dict):
            session.mirror_headers(tool["name"], schema)
    return Catalogue(version, components, session.instructions)


def _declares(capabilities: dict[str, Any], name: str) -> bool:
    """Whether to ask for it. A child that declares nothing at all is asked for everything."""
    known = {spec.capability for spec in SPECS.values()}
    return name in capabilities or not known & capabilities.keys()


async def _read_kind(server_key: str, session: ChildSession, kind: Kind) -> tuple[Component, ...]:
    try:
        return usable(server_key, kind, await _read_pages(session, SPECS[kind]))
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:
            return ()  # servers answer this for what they don't have
        if kind is Kind.TOOL or session.is_over(error):
            raise
        logger.warning("server %r cannot list its %s, which are left out: %s", server_key, kind, error.message)
        return ()


async def _read_pages(session: ChildSession, spec: KindSpec) -> list[Any]:
    items: list[Any] = []
    seen: set[str] = set()
    params: dict[str, str] | None = None
    while len(seen) < _PAGE_LIMIT:
        page = await session.request(spec.list_method, params)
        listed = page.get(spec.list_key)
        items += listed if isinstance(listed, list) else []
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen:
            break
        seen.add(cursor)
        params = {"cursor": cursor}
    return items
