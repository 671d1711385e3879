"""SIGTERM, Ctrl-C and a closed terminal: the first asks the program to end, the second ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastmcp_aggregator.children.process import kill_recorded_groups

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP")


@contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """An event that the first signal sets. Only the main thread can catch signals; elsewhere it stays unset."""
    stop = asyncio.Event()
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    loop = asyncio.get_running_loop()
    numbers = [getattr(signal, name) for name in _NAMES]
    for number in numbers:
        loop.add_signal_handler(number, _on_signal, stop)
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
