"""A loop in which time passes only when everything waits: an hour takes no time, and always the same happens."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

from support.wire import PATIENCE


class _Selector:
    """Lets the loop's clock jump to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = self._selector.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:  # no timer is set: only a thread could go on
            if ready := self._selector.select(PATIENCE):
                return ready
            raise AssertionError("nothing that could happen is waited for")
        self.now += timeout
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For what neither waits for sockets nor for threads."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._virtual.now


class VirtualTimePolicy(asyncio.DefaultEventLoopPolicy):
    """Makes such loops: for a fixture `event_loop_policy`."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualTimeLoop()


def elapsed(work: Coroutine[Any, Any, None]) -> float:
    """The virtual seconds that it takes, in a loop of its own."""
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(work)
        return loop.time()
    finally:
        loop.close()


def now() -> float:
    """The clock to hand in."""
    return asyncio.get_running_loop().time()
