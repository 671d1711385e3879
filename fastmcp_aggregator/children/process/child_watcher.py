"""How asyncio hears that a process has ended: on Linux through a descriptor of it.

It does so by itself from Python 3.12 on. Before, a thread waited for each process; to start that kept the event loop
for 3 ms.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress


def watch_by_descriptor() -> None:
    """Have the event loops of this program hear of it so. To be called before the first is made."""
    if sys.platform != "linux" or sys.version_info >= (3, 12):
        return
    with suppress(OSError):  # a sandbox may refuse it
        os.close(os.pidfd_open(os.getpid()))
        asyncio.get_event_loop_policy().set_child_watcher(asyncio.PidfdChildWatcher())
