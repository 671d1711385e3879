"""A child process and everything that it starts, as one thing that can be ended: on POSIX, a process group.

The process leads a session and a process group of its own, so that a Ctrl-C in our terminal reaches only us. Only
groups that were made here are ever signalled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fastmcp_aggregator.children.process_groups.parent_death import with_parent_death_signal


class ProcessGroup:
    """The group that a process leads, whose id is that of the process."""

    def __init__(self, transport: asyncio.SubprocessTransport) -> None:
        pid = transport.get_pid()
        assert pid
        self._id = pid

    @staticmethod
    def launching(
        command: str, arguments: Sequence[str], environment: Mapping[str, str], cwd: str | None
    ) -> tuple[list[str], Mapping[str, Any]]:
        """The arguments to start for a command, and the options of `Popen` that make it the leader of a group."""
        if sys.platform != "linux":
            return [command, *arguments], {"start_new_session": True}
        started, options = with_parent_death_signal(command, arguments, environment, cwd)
        return started, {"start_new_session": True, **options}

    def terminate(self) -> None:
        """Ask everything in it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End whatever is left of it, at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._id, number)
