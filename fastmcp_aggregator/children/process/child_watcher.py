"""An asyncio child watcher: on Linux a process's end is noticed through a descriptor of it.

It does so by itself from Python 3.12 on. Before, a thread waited for each process; to start that kept the event loop
for 3 ms.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def watched_by_descriptor() -> Iterator[None]:
    """Have the event loop that is made and ended meanwhile, in the main thread, hear of it so."""
    if sys.platform != "linux" or sys.version_info >= (3, 12):
        yield
        return
    policy = asyncio.get_event_loop_policy()
    before = policy.get_child_watcher()
    with suppress(OSError):  # a sandbox may refuse it
        os.close(os.pidfd_open(os.getpid()))
        policy.set_child_watcher(asyncio.PidfdChildWatcher())
    try:
        with warnings.catch_warnings():
            # Processes left at the end are killed, not waited for.
            warnings.filterwarnings("ignore", "A loop is being detached", RuntimeWarning)
            yield
    finally:
        policy.set_child_watcher(before)
