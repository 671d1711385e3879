"""Start slots: a limiter of how many servers start at once, in config order, with priority for awaited ones.

Theory. Many servers import for seconds. Started all at once, they take the processors from the aggregator, which then
answers its client no sooner than the last of them is up. So a few start at a time, in config order, but for those that
a request waits for: these go first, by turns of the servers, since one may have many instances that do not come up. A
slot is released when the process is listed or has failed; one that only waits, for the network or for ever, keeps its
slot no longer than `patience`. Remote servers, of which each costs little and all at once cost much, have slots of
their own.

This module knows neither FastMCP nor the SDK.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

from fastmcp_aggregator.concurrency.waits import wait_first


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


AT_ONCE = max(4, 4 * _processors())
"""Processes that start at once, unless told otherwise: a start also waits for disks and networks."""
EARLY = max(1, _processors() - 1)
"""Those that start while FastMCP is imported, which has a processor for itself, if there are two."""
START_PATIENCE = 10.0
"""Seconds after which a process that still starts keeps no other one waiting."""


class StartSlots:
    """At most `limit` slots are held at once."""

    def __init__(self, limit: int = AT_ONCE, patience: float = START_PATIENCE) -> None:
        self._limit = limit
        self._patience = patience
        self._waiting: dict[Hashable, tuple[asyncio.Event, Callable[[], bool], str]] = {}
        self._held: dict[Hashable, tuple[asyncio.TimerHandle, str]] = {}

    @asynccontextmanager
    async def slot(
        self, name: Hashable, stopping: asyncio.Event, is_wanted: Callable[[], bool], server: str = ""
    ) -> AsyncIterator[None]:
        """Wait for a slot, or until `stopping` is set, and hold it inside, for `patience` seconds at most.

        `is_wanted` says whether a request waits for it, at any time; `server` is the key of whose instance it is.
        """
        came = asyncio.Event()
        self._waiting[name] = came, is_wanted, server
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
            wanted = self._wanted()
            if len(self._held) >= (self._limit if wanted is None else 2 * self._limit):
                return
            name = next(iter(self._waiting)) if wanted is None else wanted
            came, _, server = self._waiting.pop(name)
            self._held[name] = asyncio.get_running_loop().call_later(self._patience, self._end, name), server
            came.set()

    def _wanted(self) -> Hashable | None:
        """What a request waits for: the first of the server that holds the fewest slots."""
        held = Counter(server for _, server in self._held.values())
        wanted = [(held[server], name) for name, (_, is_wanted, server) in self._waiting.items() if is_wanted()]
        return min(wanted, key=lambda each: each[0])[1] if wanted else None

    def _end(self, name: Hashable) -> None:
        if held := self._held.pop(name, None):
            held[0].cancel()
            self.admit()
