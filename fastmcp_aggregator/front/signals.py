"""Signals and graceful shutdown: the first SIGTERM, SIGINT or SIGHUP asks to end, the second ends at once.

SIGHUP has two meanings. From a service manager or a user it asks a program to read its config again; from the system it
says that the terminal was closed. The second is known by the terminal being gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from fastmcp_aggregator.children.process.process import kill_recorded_groups
from fastmcp_aggregator.concurrency.waits import meanwhile


@contextmanager
def stop_on_signals(on_hangup: Callable[[], None] | None = None) -> Iterator[asyncio.Event]:
    """An event that the first signal sets. Only the main thread can catch signals; elsewhere it stays unset.

    `on_hangup` is called instead at each SIGHUP, unless the program is ending or its terminal was closed.
    """
    stop = asyncio.Event()
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    loop = asyncio.get_running_loop()
    numbers = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    for number in numbers:
        loop.add_signal_handler(number, _on_signal, stop)
    if on_hangup is not None:
        loop.add_signal_handler(signal.SIGHUP, _on_hangup, stop, on_hangup, _has_terminal())
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _on_signal(stop: asyncio.Event) -> None:
    if stop.is_set():
        kill_recorded_groups()
        os._exit(1)
    stop.set()


def _on_hangup(stop: asyncio.Event, on_hangup: Callable[[], None], had_terminal: bool) -> None:
    if stop.is_set() or (had_terminal and not _has_terminal()):
        _on_signal(stop)
    else:
        on_hangup()


def _has_terminal() -> bool:
    """True if the process has a controlling terminal (POSIX.1-2017, XBD 11.1.3)."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def serve_until(
    stop: asyncio.Event,
    serving: Awaitable[None],
    starting: Awaitable[None],
    *,
    finish: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until it ends, the program is told to stop, or the start has failed, which `starting` raises.

    A front that is told to stop ends by itself, or is ended once `finish` has let requests in flight be answered.
    """
    front = asyncio.ensure_future(serving)
    told = asyncio.ensure_future(stop.wait())
    start = asyncio.ensure_future(starting)
    async with meanwhile(start, told, front):
        await asyncio.wait({front, told, start}, return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
        await asyncio.wait({front, told}, return_when=asyncio.FIRST_COMPLETED)
        if finish is None:
            await front
        elif not front.done():
            await finish()
        else:
            front.result()
