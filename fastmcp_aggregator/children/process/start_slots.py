"""Start slots: a limiter of how many servers start at once, in config order, with priority for awaited ones.

Theory. Many servers import for seconds. Started all at once, they take the processors from the aggregator, which then
answers its client no sooner than the last of them is up. So a few start at a time, in config order, but for those that
a request waits for: these go first, and find as many slots again. Callers take turns there, and servers, since one may
have many instances that do not come up; half of all slots are the most for one of either. A caller that holds none is
before all others, whatever others have of the same server, and finds half as many slots again once all are held. When
these are held, too, it takes the oldest of who holds most, whose start goes on without one. So its start waits only
while as many callers as there are slots hold one each, and no longer than `timeout`, for which a slot is held at most.
It is released sooner when the process is listed or has failed. Remote servers, of which each costs little and all at
once cost much, have slots of their own.

This module knows neither FastMCP nor the SDK.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastmcp_aggregator.concurrency.waits import wait_first


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


AT_ONCE = max(4, 4 * _processors())
"""Processes that start at once, unless told otherwise: a start also waits for disks and networks."""
EARLY = max(1, _processors() - 1)
"""Starts while FastMCP is imported, which has a processor for itself, if there are two."""
SLOT_TIMEOUT = 10.0
"""Seconds after which a process that still starts keeps no other one waiting."""


@dataclass(frozen=True, slots=True)
class Start:
    """One that waits for a slot: of which server, for whom, and whether a request waits for it, at any time."""

    server: str
    is_wanted: Callable[[], bool] = lambda: False
    holder: Callable[[], Hashable] = lambda: None
    """The holder that it counts for; None: nobody."""


class StartSlots:
    """At most `limit` slots are held at once, as many again by what requests wait for, and as many once more by those
    of callers that hold none.
    """

    def __init__(self, limit: int = AT_ONCE, timeout: float = SLOT_TIMEOUT) -> None:
        self._limit = limit
        self._timeout = timeout
        self._waiting: dict[Hashable, tuple[asyncio.Event, Start]] = {}
        self._held: dict[Hashable, tuple[asyncio.TimerHandle, str, Hashable]] = {}

    @asynccontextmanager
    async def slot(self, name: Hashable, stopping: asyncio.Event, start: Start) -> AsyncIterator[None]:
        """Wait for a slot, or until `stopping` is set, and hold it inside, for `timeout` seconds at most."""
        came = asyncio.Event()
        self._waiting[name] = came, start
        self.admit()
        try:
            await wait_first(came, stopping)
            yield
        finally:
            self._waiting.pop(name, None)
            self._end(name)

    def admit(self) -> None:
        """Let processes start while there are slots, or a request waits for one though others are still starting."""
        while self._waiting:
            name = self._wanted()
            if name is None:
                if len(self._held) >= self._limit:
                    return
                name = next(iter(self._waiting))
            elif len(self._held) >= 3 * self._limit:
                self._give_way()
            came, start = self._waiting.pop(name)
            timer = asyncio.get_running_loop().call_later(self._timeout, self._end, name)
            self._held[name] = timer, start.server, start.holder()
            came.set()

    def _wanted(self) -> Hashable | None:
        """The start that a request waits for and that may begin: the first of who holds the fewest slots."""
        servers = Counter(server for _, server, _ in self._held.values())
        holders = self._holders()
        has_room = len(self._held) < 2 * self._limit
        may_begin_first = len(self._held) < 3 * self._limit or max(holders.values(), default=0) > 1
        best, fewest = None, (self._limit, self._limit)
        for name, (_, start) in self._waiting.items():
            if start.is_wanted():
                holder = start.holder()
                held = holders[holder], servers[start.server]
                is_first = holder is not None and not held[0]
                may_begin = may_begin_first if is_first else max(held) < self._limit and has_room
                if may_begin and held < fewest:
                    best, fewest = name, held
        return best

    def _give_way(self) -> None:
        [(holder, _)] = self._holders().most_common(1)
        oldest = next(name for name, (_, _, each) in self._held.items() if each == holder)
        self._held.pop(oldest)[0].cancel()

    def _holders(self) -> Counter[Hashable]:
        return Counter(holder for _, _, holder in self._held.values() if holder is not None)

    def _end(self, name: Hashable) -> None:
        if held := self._held.pop(name, None):
            held[0].cancel()
            self.admit()
