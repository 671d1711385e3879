"""Telling children that their client's roots have changed."""

from __future__ import annotations

from collections.abc import Iterable

from fastmcp_aggregator.children.child import Child


async def roots_changed(children: Iterable[Child]) -> None:
    """Tell all that keep a session with a client; a modern child is told the roots when it asks."""
    for child in children:
        if child.session is not None and child.session.era == "legacy":
            await child.session.notify("notifications/roots/list_changed")
