"""A child process and everything that it starts, as one thing that can be ended: on POSIX, a process group.

The process leads a session and a process group of its own, so that a Ctrl-C in our terminal reaches only us. Only
groups that were made here are ever signalled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1


def _parent_death_signal() -> Callable[[], object] | None:
    """What a child does first on Linux: ask the kernel to kill it when we end, in whatever way."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only here

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ProcessGroup:
    """The group that a process leads, whose id is that of the process."""

    START_OPTIONS: Mapping[str, Any] = {"start_new_session": True, "preexec_fn": _parent_death_signal()}
    """What makes a new process the leader of one."""

    def __init__(self, transport: asyncio.SubprocessTransport) -> None:
        pid = transport.get_pid()
        assert pid
        self._id = pid

    @staticmethod
    def executable(command: str) -> str:
        """The program that a command names; the system finds it."""
        return command

    def terminate(self) -> None:
        """Ask everything in it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End whatever is left of it, at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._id, number)
