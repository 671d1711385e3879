"""Waiting for the first of several events."""

from __future__ import annotations

import asyncio


async def wait_first(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Return when the first of these events is set, or after so many seconds."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=timeout)
    finally:
        for wait in waits:
            wait.cancel()
