"""Garbage collections that look at what is new alone.

Theory. The program stops while its objects are looked at: a third of a second with two thousand open streams, and who
opens these brings it about again and again. So what has survived a whole collection is not looked at by the next ones.
What becomes garbage there is freed at once, unless it is in a circle; for circles everything is looked at from time to
time, if there is much more than there was.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_WHOLE = 2
"""The generation whose collection looks at everything that is not set aside."""
_INTERVAL = 600.0
"""Seconds between two collections that look at what was set aside, too."""
_GROWTH = 1.25
"""By how much there has to be more of it, so that it is worth the pause."""


@contextmanager
def short_collections(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """While the program serves: set aside what survives."""
    collections = _Collections(clock)
    gc.callbacks.append(collections.on_collection)
    try:
        yield
    finally:
        gc.callbacks.remove(collections.on_collection)


class _Collections:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looked_at = clock()
        self._set_aside = gc.get_freeze_count()
        self._looks_at_all = False

    def on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """A collection begins or ends."""
        if phase != "stop" or info["generation"] != _WHOLE:
            return
        if not self._looks_at_all and self._is_due():
            self._looks_at_all = True
            gc.unfreeze()  # for the next one
            return
        gc.freeze()
        if self._looks_at_all:
            self._looks_at_all = False
            self._looked_at, self._set_aside = self._clock(), gc.get_freeze_count()

    def _is_due(self) -> bool:
        if self._clock() - self._looked_at < _INTERVAL:
            return False
        return gc.get_freeze_count() > self._set_aside * _GROWTH
