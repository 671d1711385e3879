"""A child process and everything that it starts, as one thing that can be ended: on Windows, a Job Object.

The SDK's helpers do the work; elsewhere than on Windows they do nothing. Two of them are private: its public way to a
job starts the process as well, with streams that have neither a size limit nor flow control.
`tests/children/test_children_windows.py` fails when they change. This has never run on Windows.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from mcp.os.win32 import utilities


class JobObject:
    """A job with one process in it. What that starts later is in it too."""

    def __init__(self, transport: asyncio.SubprocessTransport) -> None:
        pid = transport.get_pid()
        assert pid
        self.pid = pid
        self._transport = transport
        # The SDK keeps the job by the process that it is for, of which it looks at the id only.
        utilities._maybe_assign_process_to_job(self, utilities._create_job_object())  # type: ignore[arg-type]

    @staticmethod
    def launching(
        command: str, arguments: Sequence[str], environment: Mapping[str, str], cwd: str | None
    ) -> tuple[list[str], Mapping[str, Any]]:
        """The arguments to start for a command, and the options of `Popen` for it, without a console window for each
        process.

        `npx` is a script, `npx.cmd`, which only its whole name finds.
        """
        program = utilities.get_windows_executable_command(command)
        return [program, *arguments], {"creationflags": getattr(subprocess, "CREATE_NO_WINDOW", 0)}

    def terminate(self) -> None:
        """The same as `kill`: nothing asks a process to end here, but its closed stdin."""
        self.kill()

    def kill(self) -> None:
        """End whatever is left of it, at once; the process also when there is no job, because none could be made."""
        utilities.close_process_job(self)  # type: ignore[arg-type]
        with suppress(ProcessLookupError, PermissionError):
            self._transport.kill()
