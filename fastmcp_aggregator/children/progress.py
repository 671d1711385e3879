"""Progress notifications during a start, for the caller that waits for it and has asked for progress."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastmcp_aggregator.children.session.ownership import Owner
from fastmcp_aggregator.protocol.methods import PROGRESS

_PACE = 1.0
"""Seconds between two notifications."""


async def reporting(waiting: Coroutine[Any, Any, None], owner: Owner | None, message: str) -> None:
    """Wait, and tell the owner so once a second.

    Progress has to increase with each notification, and a server's own may begin at 0: so this ends below that.
    """
    if owner is None or not owner.wants_progress:
        return await waiting
    task = asyncio.ensure_future(waiting)
    said = 0
    try:
        while not (await asyncio.wait({task}, timeout=_PACE))[0]:
            said += 1
            owner.notify(PROGRESS.name, {"progress": -1 / said, "message": message})
        return task.result()
    finally:
        task.cancel()
