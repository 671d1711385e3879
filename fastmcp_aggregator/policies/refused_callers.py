"""Back-pressure on callers that go on after they were refused: their requests take turns, so that they cost others
nothing.
"""

from __future__ import annotations

import asyncio

from fastmcp_aggregator.concurrency.limiter import Holder
from fastmcp_aggregator.pipe.bucket import TokenBucket

_AT_ONCE = 20
"""Refusals after which nobody is slowed down, and so many more a second."""
_SPACING = 0.01
"""Seconds between two requests of a caller that is slowed down."""
_LASTS = 1.0
"""Seconds for which it is, after its last refusal too many."""
_MOST = 1000
"""Callers that are known before those are forgotten that are not slowed down."""


class _Lately:
    """What a caller was refused lately: until when it is slowed down, and when the next of its requests begins."""

    __slots__ = ("allowance", "due", "until")

    def __init__(self) -> None:
        self.allowance = TokenBucket(burst=_AT_ONCE, rate=_AT_ONCE)
        self.until = self.due = 0.0


class RefusedCallers:
    def __init__(self) -> None:
        self.lately: dict[Holder, _Lately] = {}
        """Who is not in it need not wait for a turn."""

    def refused(self, holder: Holder) -> None:
        now = asyncio.get_running_loop().time()
        if holder not in self.lately and len(self.lately) >= _MOST:
            self.lately = {each: lately for each, lately in self.lately.items() if lately.until > now}
        lately = self.lately.setdefault(holder, _Lately())
        if not lately.allowance.take(now):
            lately.until = now + _LASTS

    async def refuse(self, holder: Holder) -> None:
        """A request is to be refused: wait until it may be."""
        self.refused(holder)
        await self.turn(holder)

    async def turn(self, holder: Holder) -> None:
        """Wait until a request of this holder may begin; at once, unless too many were refused lately."""
        lately = self.lately.get(holder)
        if lately is None:
            return
        now = asyncio.get_running_loop().time()
        if lately.until > now or lately.due > now:
            lately.due = max(now, lately.due) + _SPACING
            await asyncio.sleep(lately.due - now)
