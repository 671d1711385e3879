"""One child process: its process group, its three pipes, its graceful shutdown and kill.

Theory. A process is started in a group of its own (on POSIX a process group, on Windows a Job Object), so that it and
everything it starts can be ended together. Its end comes in one of two ways:

- we end it: close its stdin (what the MCP specification asks for), then SIGTERM to its group, then SIGKILL;
- it ends by itself: a crash, or a polite exit.

In both cases whatever is left of its group afterwards is killed: a launcher such as npx or uvx that dies leaves
the real server behind otherwise. Only groups recorded here are ever signalled.

This module knows neither FastMCP nor the SDK: the command line starts the children with it while FastMCP is still
being imported. (On Windows the SDK comes with the jobs.)
"""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from fastmcp_aggregator.children.process.environment import (
    NOT_STARTED,
    child_environment,
    spawn_failure,
    working_folder,
)
from fastmcp_aggregator.children.process.start_slots import EARLY
from fastmcp_aggregator.children.process.stderr import ChildStderr
from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.observability.secret_values import secrets_in
from fastmcp_aggregator.pipe.lines import LINE_LIMIT, LineSplitter, OnOversized
from fastmcp_aggregator.settings.options import DEFAULT_OPTIONS, EndpointOptions

if sys.platform == "win32":
    from fastmcp_aggregator.children.process_groups.windows import JobObject as Group
else:
    from fastmcp_aggregator.children.process_groups.posix import ProcessGroup as Group
logger = logging.getLogger(__name__)
_TOLD_ANOTHER = 255
"""asyncio's exit code when the system has told it to another first: to the `Popen` object, if asyncio's transport is
closed just when the process ends.
"""
_TOLD_TO_END = {-signal.SIGTERM, -getattr(signal, "SIGKILL", signal.SIGTERM)}
"""The exit codes of processes that others have ended; Windows has no SIGKILL."""
_recorded: set[ChildProcess] = set()


def kill_recorded_groups() -> None:
    """Kill every group that is still recorded, at once. For the end of the program when there is no time left."""
    for process in list(_recorded):
        process.kill_group()


@dataclass(frozen=True, slots=True)
class Graces:
    """Seconds that a process is given to end."""

    exit: float = 1.0
    """The time to exit by itself once its stdin is closed."""
    term: float = 0.7
    """After SIGTERM. Together under 2 s, which is what clients built on the SDK give us."""
    reap: float = 2.0
    """The kernel's time to report a kill."""

    @property
    def total(self) -> float:
        return self.exit + self.term + self.reap


DEFAULT_GRACES = Graces()


class ChildProcess(asyncio.SubprocessProtocol):
    """A running child. Create it with `spawn`; the caller of that owns it and calls `stop`."""

    def __init__(self, server: StdioServer, options: EndpointOptions, graces: Graces) -> None:
        self.server_key = server.key
        self._graces = graces
        secrets = partial(secrets_in, server)
        self.stderr = ChildStderr(server.key, options.stderr_dir, secrets=secrets, as_json=options.json_stderr)
        self.exited = asyncio.Event()
        """Set when the process has exited."""
        self.closed = asyncio.Event()
        """Set when nothing more can be read from it: its stdout ended, or it did."""
        self._line_limit = options.line_limit
        self._splitter = LineSplitter(options.line_limit, self._refuse_line, endless_from=LINE_LIMIT)
        self._early: list[bytes] = []
        self._is_attached = False
        self._on_lines: Callable[[list[bytes]], None] = self._early.extend
        self._on_end: Callable[[], None] = lambda: None
        self._on_oversized: OnOversized = lambda _head, _tail: None
        self.has_room = True
        self._room = asyncio.Event()
        self._room.set()
        self._broken = False

    @classmethod
    async def spawn(
        cls, server: StdioServer, options: EndpointOptions = DEFAULT_OPTIONS, graces: Graces = DEFAULT_GRACES
    ) -> ChildProcess:
        """Start the process; its stdout is not read before `attach`.

        Raises:
            ChildServerError: it cannot be started; the message says why and what to do.
        """
        creating = asyncio.ensure_future(cls._create(server, options, graces))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            # A cancelled creation never returns (asyncio waits for pipes that it has not connected), so it is
            # left to finish, which takes milliseconds, and what it made is ended.
            process = await creating
            process.kill_group()
            await process.stop()
            raise
        except (OSError, ValueError) as error:
            raise ChildServerError(
                server.key, "startup", spawn_failure(server, error), cause=error, public_reason=NOT_STARTED
            ) from None

    @classmethod
    async def _create(cls, server: StdioServer, options: EndpointOptions, graces: Graces) -> ChildProcess:
        environment, folder = child_environment(server), working_folder(server)
        started, how = Group.launching(server.command, server.args, environment, folder)
        _, process = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(server, options, graces), *started, env=environment, cwd=folder, **how
        )
        return process

    @property
    def pid(self) -> int:
        """The process id; on POSIX also the id of its process group."""
        return self._pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        code: int | None = self._transport.get_returncode()
        if code == _TOLD_ANOTHER:
            popen: subprocess.Popen[bytes] = self._transport.get_extra_info("subprocess")
            return popen.returncode
        return code

    @property
    def has_ended_by_itself(self) -> bool:
        """True if it has exited or crashed without being told to."""
        code = self.returncode
        return code is not None and code not in _TOLD_TO_END

    @property
    def line_limit_mib(self) -> str:
        """The limit of a line of its stdout, in words."""
        return f"{self._line_limit / 1024**2:g} MiB"

    def attach(
        self,
        on_lines: Callable[[list[bytes]], None],
        on_end: Callable[[], None],
        on_oversized: OnOversized = lambda _head, _tail: None,
    ) -> None:
        """Start reading stdout: whole lines go to `on_lines`, the edges of one too long to `on_oversized`, its end to
        `on_end`.
        """
        self._is_attached = True
        self._on_oversized = on_oversized
        self._on_lines = on_lines
        self._on_end = on_end
        # asyncio reads from the moment it has the pipe, so something may be here before it could be told to wait.
        if self._early:
            on_lines(self._early)
        if self.closed.is_set():
            on_end()
        elif self.exited.is_set():
            self._end_output_soon()
        self.resume_reading()

    def pause_reading(self) -> None:
        with suppress(RuntimeError):
            self._stdout.pause_reading()

    def resume_reading(self) -> None:
        with suppress(RuntimeError):
            self._stdout.resume_reading()

    def write(self, data: bytes) -> None:
        """Buffer bytes for its stdin. Await `drained` first while it has no room: that is the backpressure.

        Raises:
            BrokenPipeError: its reader is gone; nothing of these bytes was read.
        """
        if self._broken:
            raise BrokenPipeError
        self._stdin.write(data)
        if self._stdin.is_closing():  # it tries at once
            self._break()
            raise BrokenPipeError

    async def drained(self) -> None:
        """Wait until its stdin has room again."""
        await self._room.wait()
        if self._broken:
            raise BrokenPipeError

    async def stop(self) -> None:
        """Stop the process and its whole group: gracefully, then kill. Takes at most about 4 s, usually far less."""
        try:
            with suppress(OSError, RuntimeError):
                self._stdin.close()
            if not await self._exits_within(self._graces.exit):
                self._group.terminate()
                if not await self._exits_within(self._graces.term):
                    self.kill_group()
                    await self._exits_within(self._graces.reap)
        finally:
            self.kill_group()
            _recorded.discard(self)
            with suppress(PermissionError):
                self._transport.close()

    def kill_group(self) -> None:
        """Kill everything that is left of its group, at once."""
        self._group.kill()

    def describe_exit(self) -> str:
        """Describe how it ended, for an error message."""
        code = self.returncode
        if code is None:
            return "it closed its stdout"
        if code >= 0:
            return f"it exited with code {code}"
        with suppress(ValueError):
            return f"it was ended by signal {signal.Signals(-code).name}"
        return f"it was ended by signal {-code}"

    async def _exits_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.exited.wait(), seconds)
        except TimeoutError:
            return False
        return True

    # asyncio's callbacks for the process and its pipes.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        pid = transport.get_pid()
        assert pid is not None
        self._pid = pid
        self._group = Group(transport)
        stdin, stdout = transport.get_pipe_transport(0), transport.get_pipe_transport(1)
        self._stdin: asyncio.WriteTransport = stdin  # type: ignore[assignment]
        self._stdout: asyncio.ReadTransport = stdout  # type: ignore[assignment]
        self._stdout.pause_reading()
        self._stdout.set_protocol(_Stdout(self._stdout.get_protocol(), partial(self.pipe_data_received, 1)))
        _recorded.add(self)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            if seconds := self.stderr.feed(data):
                self._read_stderr_later(seconds)
        elif lines := self._splitter.feed(data):
            self._on_lines(lines)

    def _read_stderr_later(self, seconds: float) -> None:
        """Pause reading during a flood: the data waits, and so does the child if it goes on."""
        pipe: asyncio.ReadTransport = self._transport.get_pipe_transport(2)  # type: ignore[assignment]
        pipe.pause_reading()
        asyncio.get_running_loop().call_later(seconds, pipe.resume_reading)

    def _refuse_line(self, head: bytes, tail: bytes | None) -> None:
        limit = self.line_limit_mib
        logger.warning("server %r wrote a line of more than %s to its stdout; dropped", self.server_key, limit)
        self._on_oversized(head, tail)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 2:
            self.stderr.end()
        elif fd == 1:
            if last := self._splitter.end():
                self._on_lines(last)
            self._end_of_output()
        else:
            self._break()

    def process_exited(self) -> None:
        # What it wrote before it ended may still be in the pipe: the end of stdout says when that was read.
        # A grandchild may hold the pipe open, and then only this says that the child is gone.
        self.exited.set()
        self.kill_group()
        if self._is_attached:
            self._end_output_soon()

    def pause_writing(self) -> None:
        self.has_room = False
        self._room.clear()

    def resume_writing(self) -> None:
        self.has_room = True
        self._room.set()

    def _break(self) -> None:
        """The reader of its stdin is gone: writers that wait for room are told."""
        self._broken = True
        self.resume_writing()

    def _end_output_soon(self) -> None:
        asyncio.get_running_loop().call_later(0.2, self._end_of_output)

    def _end_of_output(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self._on_end()


class _Stdout(asyncio.Protocol):
    """A pipe whose data are passed on as they are read: asyncio's own protocol keeps them for a turn of the loop."""

    def __init__(self, own: asyncio.BaseProtocol, on_data: Callable[[bytes], None]) -> None:
        self._own = own
        self._on_data = on_data

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._own.connection_lost(exc)


Launched = Mapping[str, asyncio.Task[ChildProcess]]
"""Processes that are being started, by server key."""


def launch_early(config: McpConfig, options: EndpointOptions, is_awaited: Callable[[StdioServer], bool]) -> Launched:
    """Start the first processes of the config now, of those whose start is waited for; the others would take the
    processors from the import.

    Gives them the time in which FastMCP is imported. A task's failure is reported by the child that takes it over.
    """
    stdio = (server for server in config.servers.values() if isinstance(server, StdioServer))
    servers = (server for server in stdio if is_awaited(server))
    return {server.key: asyncio.ensure_future(ChildProcess.spawn(server, options)) for server in islice(servers, EARLY)}
