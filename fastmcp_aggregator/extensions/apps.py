"""MCP Apps (SEP-1865): tools that name a page, as a resource, for the host to show. Pure.

It has no methods: pages are read as resources.
"""

from __future__ import annotations

from collections.abc import Callable

from fastmcp_aggregator.extensions.extension import Extension, Item
from fastmcp_aggregator.protocol.methods import TOOLS_CALL, TOOLS_LIST


def publish_page(item: Item, publish: Callable[[str], str]) -> Item:
    """The page that the `_meta` of a tool, or of its result, names; older servers have the flat key."""
    meta = item.get("_meta")
    if not isinstance(meta, dict):
        return item
    changed = dict(meta)
    ui = meta.get("ui")
    if isinstance(ui, dict) and isinstance(ui.get("resourceUri"), str):
        changed["ui"] = {**ui, "resourceUri": publish(ui["resourceUri"])}
    if isinstance(meta.get("ui/resourceUri"), str):
        changed["ui/resourceUri"] = publish(meta["ui/resourceUri"])
    return {**item, "_meta": changed} if changed != meta else item


APPS = Extension(
    "io.modelcontextprotocol/ui",
    settings={"mimeTypes": ["text/html;profile=mcp-app"]},
    rewrites={TOOLS_LIST.name: publish_page, TOOLS_CALL.name: publish_page},
)
