"""Long polling: a browser waits for something new to show.

Theory. A browser asks for its view and says which one it has (`If-None-Match`); the answer waits until there is
another, or until a bound that the browser names (`Prefer: wait`, RFC 7240, 4.3) is over. So each request ends by
itself and authenticates anew, the end of the program waits for none, and proxies need to know nothing of streams.

The view comes from many sources, some of which do not tell when they change, so it is looked at, a few times a
second, while somebody waits. One look serves all who wait: it numbers the states of what is shown. For each of them a
view is made only when that number has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from fastmcp_aggregator.concurrency.limiter import FairShare, Holder

PACE = 0.25
"""Seconds between two looks, and so the least that a browser waits for something new."""
WAIT_BOUND = 30.0
WAITING_LIMIT = 160
"""Requests of one viewer alone that wait, at most; there is a reserve for others, and who has many gives way to them.
The answers to further ones do not wait.
"""


class Watch:
    """Looks whether something has changed, on behalf of all who wait."""

    def __init__(self, look: Callable[[], Hashable]) -> None:
        """`look` gives a value that is another one whenever something else is to be shown."""
        self._look = look
        self._seen: Any = None
        self._number = 0
        self._looked_at = -PACE
        self._waiting = FairShare(WAITING_LIMIT)

    async def until(self, is_new: Callable[[], Awaitable[bool]], seconds: float, holder: Holder) -> None:
        """Wait until something is new for one browser, which is asked after each change, or until the time is over;
        `holder` is whose it is.
        """
        if not self._waiting.try_acquire(holder):
            return
        ends = time.monotonic() + min(seconds, WAIT_BOUND)
        seen = -1
        try:
            while (left := ends - time.monotonic()) > 0:
                await asyncio.sleep(min(PACE, left))
                before, seen = seen, self._current()
                if seen != before and await is_new():
                    return
        finally:
            self._waiting.release(holder)

    def _current(self) -> int:
        now = time.monotonic()
        if now - self._looked_at >= PACE / 2:
            self._looked_at = now
            found = self._look()
            if found != self._seen:
                self._seen = found
                self._number += 1
        return self._number
