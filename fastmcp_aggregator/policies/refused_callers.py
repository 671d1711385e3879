"""Back-pressure on callers that go on after they were refused: their requests take turns, so that they cost others
nothing. Those of a connection are no more than these: who leaves gives its turn up. Those that wait at the gate are no
more than it admits of one caller.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from fastmcp_aggregator.concurrency.limiter import Holder
from fastmcp_aggregator.pipe.bucket import TokenBucket

_AT_ONCE = 20
"""So many refusals at once slow no caller down, and so many more a second."""
_SPACING = 0.01
"""Seconds between two requests of a caller that is slowed down."""
_LASTS = 1.0
"""Seconds for which a caller is slowed down after its last refusal over the limit."""
_MOST = 1000
"""Callers tracked before those that are not slowed down are evicted."""


class WaitingConnection(Protocol):
    def give_way(self, turn: asyncio.Future[None]) -> None:
        """Let it be closed for others, as one without a request, while its request waits for a turn; which is over when
        it is closed.
        """
        ...


class _Lately:
    """The recent refusals of a caller: until when it is slowed down, when the next of its requests may begin, and those
    that wait.
    """

    __slots__ = ("_timer", "_waiting", "allowance", "due", "until")

    def __init__(self) -> None:
        self.allowance = TokenBucket(burst=_AT_ONCE, rate=_AT_ONCE)
        self.until = self.due = 0.0
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, connection: WaitingConnection | None) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if self._timer is None:
            self._timer = loop.call_at(max(loop.time(), self.due), self._begin_next)
        self._waiting[turn] = None
        try:
            if connection is not None:
                connection.give_way(turn)
            await turn
        finally:
            self._waiting.pop(turn, None)

    def _begin_next(self) -> None:
        self._timer = None
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():  # or its client has left
                turn.set_result(None)
                loop = asyncio.get_running_loop()
                self.due = loop.time() + _SPACING
                self._timer = loop.call_at(self.due, self._begin_next)
                return


class RefusedCallers:
    def __init__(self) -> None:
        self.lately: dict[Holder, _Lately] = {}
        """Callers that were refused of late; others need not wait for a turn."""

    def refused(self, holder: Holder) -> None:
        now = asyncio.get_running_loop().time()
        if holder not in self.lately and len(self.lately) >= _MOST:
            self.lately = {each: lately for each, lately in self.lately.items() if lately.until > now}
        lately = self.lately.setdefault(holder, _Lately())
        if not lately.allowance.take(now):
            lately.until = now + _LASTS

    async def refuse(self, holder: Holder, connection: WaitingConnection | None = None) -> None:
        """A request is to be refused: wait until it may be, or its client leaves."""
        self.refused(holder)
        await self.turn(holder, connection)

    async def turn(self, holder: Holder, connection: WaitingConnection | None = None) -> None:
        """Wait until a request of this holder may begin; at once, unless too many were refused lately."""
        lately = self.lately.get(holder)
        if lately is None:
            return
        now = asyncio.get_running_loop().time()
        if lately.until > now or lately.due > now:
            await lately.wait(connection)
