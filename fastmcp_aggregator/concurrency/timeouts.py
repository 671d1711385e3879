"""Timeouts of one length, which share a timer: to set and cancel one for each call costs more than most else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable


class Timeouts:
    """What is to end within so many seconds, and what is called if it does not."""

    __slots__ = ("_loop", "_running", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[Hashable, tuple[float, Callable[[], None]]] = {}
        """When each expires; the oldest are the first to."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, what: Hashable, on_expired: Callable[[], None]) -> None:
        """Give it its time, until `end`."""
        loop = asyncio.get_running_loop()
        expires = loop.time() + self._seconds
        self._running[what] = (expires, on_expired)
        if self._timer is None or self._loop is not loop:
            self._loop, self._timer = loop, loop.call_at(expires, self._expire)

    def end(self, what: Hashable) -> None:
        """It has ended, or has expired."""
        self._running.pop(what, None)

    def _expire(self) -> None:
        assert self._loop is not None
        self._timer = None
        now = self._loop.time()
        for what, (expires, on_expired) in list(self._running.items()):
            if expires > now:
                self._timer = self._loop.call_at(expires, self._expire)
                break
            del self._running[what]
            self._loop.call_soon(on_expired)
