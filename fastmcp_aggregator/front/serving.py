"""How long a front serves, whichever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def serve_until(
    stop: asyncio.Event,
    serving: Awaitable[None],
    starting: Awaitable[None],
    *,
    finish: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until it ends, the program is told to stop, or the start has failed, which `starting` raises.

    A front that is told to stop ends by itself, or is ended once `finish` has let requests in flight be answered.
    """
    front = asyncio.ensure_future(serving)
    told = asyncio.ensure_future(stop.wait())
    start = asyncio.ensure_future(starting)
    try:
        await asyncio.wait({front, told, start}, return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
        await asyncio.wait({front, told}, return_when=asyncio.FIRST_COMPLETED)
        if finish is None:
            await front
        elif not front.done():
            await finish()
        else:
            front.result()
    finally:
        for task in (start, told, front):
            task.cancel()
        await asyncio.gather(start, told, front, return_exceptions=True)
