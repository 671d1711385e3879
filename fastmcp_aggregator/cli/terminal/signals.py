"""The end of the program on SIGTERM, Ctrl-C or a closed terminal while nothing else takes care of these signals.

Importing FastMCP blocks the event loop for a second, so the loop's own signal handlers would be late.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP")


def end_on_signals(exit_code: int | None, *last_steps: Callable[[], None]) -> None:
    """Have such a signal take the last steps and end the program at once, without a word.

    Without an exit code it is that of a shell for a program that a signal has ended: 128 and the signal's number. A
    handler that is set later, such as the one of a front, has precedence.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread can handle signals

    def end(number: int, _frame: FrameType | None) -> None:
        end_at_once(last_steps, code_of(number) if exit_code is None else exit_code)

    for number in ending_signals():
        signal.signal(number, end)


def ending_signals() -> list[signal.Signals]:
    """The signals that end a program on this system."""
    return [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


def code_of(number: int) -> int:
    """The exit code that a shell gives a program that a signal has ended."""
    return 128 + number


def end_at_once(last_steps: Iterable[Callable[[], None]], code: int) -> NoReturn:
    """Take the last steps, each though others fail, and end the program."""
    for step in last_steps:
        with suppress(Exception):
            step()
    os._exit(code)
