"""The interruption of a command by a signal: a moment to close what it has opened, then the end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fastmcp_aggregator.cli.terminal.signals import code_of, end_at_once, ending_signals


@contextmanager
def interruption(grace: float, *last_steps: Callable[[], None]) -> Iterator[asyncio.Future[int]]:
    """A future that gets the exit code when such a signal comes. What is inside has `grace` seconds from then on.

    After that, or at the next signal, the last steps are taken and the program ends at once, even if the event loop is
    blocked.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()
    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    timers: list[threading.Timer] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        code = code_of(number)
        if timers:
            end_at_once(last_steps, code)
        timers.append(threading.Timer(grace, end_at_once, [last_steps, code]))
        timers[0].daemon = True
        timers[0].start()
        loop.call_soon_threadsafe(_tell, told, code)

    before = {number: signal.signal(number, interrupt) for number in ending_signals()}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for timer in timers:
            timer.cancel()


def _tell(told: asyncio.Future[int], code: int) -> None:
    if not told.done():
        told.set_result(code)
