"""Garbage collections that look at what is new alone.

Theory. The program stops while its objects are looked at: a third of a second with two thousand open streams, and who
opens these brings it about again and again. So what has survived a whole collection is not looked at by the next ones.
What becomes garbage there is freed at once, unless it is in a circle; for circles everything is looked at when the
program has nothing to do, or from time to time, if there is much more than there was.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from fastmcp_aggregator.concurrency.waits import meanwhile

_WHOLE = 2
"""The generation whose collection looks at everything that is not set aside."""
_THRESHOLD = (5000, 2, 5) if sys.version_info < (3, 14) else (5000,)
"""New objects before they are looked at: Python's own 700 or 2000 are what a few calls have made, and are about to
free. A whole collection is about as frequent as it would be; Python 3.14 looks at what is older in steps, whose size
the second number divides.
"""
_INTERVAL = 600.0
"""Seconds between two collections that look at what was set aside, too."""
_GROWTH = 1.25
"""The growth of what was set aside that is worth the pause."""
_QUIET = 0.5
"""Seconds with nothing to do, after which everything may be looked at."""
_IDLE_SHARE = 0.05
"""The most that a program computes, as a share of the time, which has nothing to do."""
_IDLE_GROWTH = 10_000
"""Objects more than there were, a few MiB, which are worth a pause that hardly anybody notices."""
_LOOKING_SHARE = 0.01
"""The most that such pauses take, as a share of the time."""


@asynccontextmanager
async def short_collections(
    clock: Callable[[], float] = time.monotonic, computed: Callable[[], float] = time.process_time
) -> AsyncIterator[None]:
    """While the program serves: set aside what survives. `computed` is how many seconds the program has computed."""
    collections = _Collections(clock)
    threshold = gc.get_threshold()
    gc.set_threshold(*_THRESHOLD)
    gc.callbacks.append(collections.on_collection)
    try:
        async with meanwhile(asyncio.create_task(collections.collect_when_idle(computed), name="garbage collections")):
            yield
    finally:
        gc.callbacks.remove(collections.on_collection)
        gc.set_threshold(*threshold)


class _Collections:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looked_at = clock()
        self._took = 0.0
        """Seconds of the last pause in which everything was looked at, if the program was idle."""
        self._set_aside = gc.get_freeze_count()
        self._may_have_grown = False
        """True if something was set aside since it was last counted, which takes a step for each object."""
        self._looks_at_all = False

    async def collect_when_idle(self, computed: Callable[[], float]) -> None:
        while True:
            began, before = self._clock(), computed()
            await asyncio.sleep(_QUIET)
            is_idle = computed() - before < _IDLE_SHARE * (self._clock() - began)
            if is_idle and self._is_worth_it():
                self._look()

    def _is_worth_it(self) -> bool:
        has_rested = self._clock() - self._looked_at >= self._took / _LOOKING_SHARE
        if not has_rested or not self._may_have_grown:
            return False
        self._may_have_grown = False
        return gc.get_freeze_count() >= self._set_aside + _IDLE_GROWTH

    def _look(self) -> None:
        began = self._clock()
        self._looks_at_all = True
        gc.unfreeze()
        gc.collect()
        self._took = self._clock() - began

    def on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """A collection begins or ends."""
        if phase != "stop" or info["generation"] != _WHOLE:
            return
        if not self._looks_at_all and self._is_due():
            self._looks_at_all = True
            gc.unfreeze()  # for the next one
            return
        gc.freeze()
        self._may_have_grown = True
        if self._looks_at_all:
            self._looks_at_all = False
            self._looked_at, self._set_aside = self._clock(), gc.get_freeze_count()

    def _is_due(self) -> bool:
        if self._clock() - self._looked_at < _INTERVAL:
            return False
        return gc.get_freeze_count() > self._set_aside * _GROWTH
