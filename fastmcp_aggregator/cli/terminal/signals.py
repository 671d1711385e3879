"""The end of the program on SIGTERM, Ctrl-C or a closed terminal while nothing else takes care of these signals.

Importing FastMCP blocks the event loop for a second, so the loop's own signal handlers would be late.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP")


def end_on_signals(exit_code: int, *last_steps: Callable[[], None]) -> None:
    """From now on such a signal takes the last steps and ends the program at once, without a word.

    A handler that is set later, such as the one of a front, has precedence.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread can handle signals

    def end(_number: int, _frame: FrameType | None) -> None:
        for step in last_steps:
            with suppress(Exception):
                step()
        os._exit(exit_code)

    for name in _NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), end)
