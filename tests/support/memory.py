"""Children in memory: the lean and the talking child as objects of this process, behind an endpoint.

`build_aggregator` here is the package's own, but the servers of `lean()` and `talking()` are no processes. What needs a
process (signals, pipes, blocking) is tested with the other one, and marked `process`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastmcp.client.transports.base import SessionKwargs
from mcp import ClientSession

import fastmcp_aggregator
from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.endpoint import Endpoint, NewEndpoint
from fastmcp_aggregator.children.session.transport import WatchedTransport
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.config import ServerConfig, StdioServer
from fastmcp_aggregator.errors import ChildServerError, Phase
from fastmcp_aggregator.message_streams import MessageWriter
from fastmcp_aggregator.settings.options import EndpointOptions
from support.doubles import NoFlowControl
from support.wire import until

sys.path.append(str(Path(__file__).parent / "programs"))

from lean_child import Child as LeanChild
from talking_child import Talk

_PIDS = itertools.count(10_000_000)
"""Above what any system has, so that no process is meant by mistake."""


QUICK = Timings(change_settle=0.001, change_interval=0.01, roots_settle=0.001)
"""What children in memory say they have said at once, so nobody waits for more."""


class _Left(BaseException):
    """What a child does that comes next, when it has left."""


def _needs_a_process(*_: Any) -> None:
    """A tool that blocks, or closes the pipes."""
    raise LookupError({"code": -32099, "message": "this tool needs a process"})


class Life:
    """One connection's child, where a process would be. It hangs, dies and talks on cue."""

    def __init__(self, kind: type[LeanChild], options: dict[str, Any]) -> None:
        self.pid = next(_PIDS)
        self.ended = asyncio.Event()
        self.code: int | None = None
        self.stderr: list[str] = []
        self.folder: str | None = None
        """The folder that its entry names."""
        self.received: list[dict[str, Any]] = []
        """What it was sent, also while it was frozen."""
        self.is_frozen = False
        self._feed: Callable[[list[bytes]], None] = lambda lines: None
        self._on_end: Callable[[], None] = lambda: None
        self._early: list[bytes] = []
        self._is_attached = False
        self._loop = asyncio.get_running_loop()
        hooks = {"pid": self.pid, "write_bytes": self._written, "complain": self.stderr.append, "leave": self._leave}
        bound = {name: staticmethod(hook) if callable(hook) else hook for name, hook in hooks.items()}
        bound |= {f"call_{tool}": staticmethod(_needs_a_process) for tool in ("wait", "deaf", "endless", "mute")}
        try:
            self.child = type(kind.__name__, (kind,), bound)(**options)
        except _Left:
            return

    # Cues.

    def die(self, code: int = -9) -> None:
        """End, as a process does."""
        if self.code is None:
            self.code = code
            self.ended.set()
            self._loop.call_soon(self._on_end)

    def freeze(self) -> None:
        """Hear and say nothing more, as a stopped process."""
        self.is_frozen = True

    # The transport's side.

    def attach(self, feed: Callable[[list[bytes]], None], on_end: Callable[[], None]) -> None:
        """Say what was said before, and everything from now on."""
        self._feed, self._on_end, self._is_attached = feed, on_end, True
        feed(self._early)
        if self.code is not None:
            on_end()

    @property
    def has_room(self) -> bool:
        return True

    async def drained(self) -> None:
        return

    def write(self, data: bytes) -> None:
        """Let it have messages, as the other end of a pipe: later, and in order."""
        if self.code is not None:
            raise BrokenPipeError
        for line in data.splitlines():
            self._loop.call_soon(self._take, json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        self.received.append(message)
        if self.code is None and not self.is_frozen:
            try:
                self.child.take(message)
            except _Left:
                return

    def _written(self, data: bytes) -> None:
        if self._is_attached:
            self._feed(data.splitlines())
        else:
            self._early += data.splitlines()

    def _leave(self, code: int) -> None:
        self.die(code)
        raise _Left


class MemoryTransport(WatchedTransport):
    """MCP with a child in memory."""

    def __init__(self, server_key: str, life: Life, *, has_fast_path: bool) -> None:
        super().__init__(server_key, life if has_fast_path else None)
        self._life = life

    @asynccontextmanager
    async def connect_session(self, *, transport_options: Any = None, **kwargs: Any) -> AsyncIterator[ClientSession]:
        session_kwargs: SessionKwargs = kwargs  # type: ignore[assignment]
        with self.reader(NoFlowControl(), self._count_junk) as reader:
            self._life.attach(reader.feed, partial(self.end, reader))
            async with self.session_class(reader, MessageWriter(self._life), **session_kwargs) as session:
                yield session

    def _count_junk(self, line: bytes) -> None:
        self.counters.ignored_lines += 1


class MemoryEndpoint(Endpoint):
    """One life of a server; it goes onto the script's list when it begins."""

    def __init__(self, server: StdioServer, options: EndpointOptions, script: Script) -> None:
        self._server = server
        self._options = options
        self._script = script
        self._life: Life | None = None

    @property
    def pid(self) -> int | None:  # type: ignore[override]
        return self._life.pid if self._life and self._life.code is None else None

    async def open(self, stack: AsyncExitStack) -> WatchedTransport:
        kind, options = self._script.begin(self._server)
        self._life = life = Life(kind, options)
        life.folder = self._server.cwd
        self._script.lives.append(life)
        stack.callback(life.die, 0)
        if gate := options.get("wait_for_file"):
            await until(lambda: os.path.exists(gate) or life.code is not None)
        return MemoryTransport(self._server.key, life, has_fast_path=self._options.has_fast_path)

    async def explain(self, phase: Phase, reason: str, cause: Exception | None) -> ChildServerError:
        life = self._life
        if life is None or life.code is None:
            return ChildServerError(self._server.key, phase, reason, cause=cause)
        how = f"it exited with code {life.code}" if life.code >= 0 else "it was ended by signal SIGKILL"
        says_why = phase != "runtime" or life.code >= 0
        said = f"{how} (stderr: {life.stderr[-1]})" if life.stderr and says_why else how
        return ChildServerError(
            self._server.key, phase, said, cause=cause, stderr_tail=life.stderr[-20:], public_reason=how
        )

    def kill(self) -> None:
        if self._life is not None:
            self._life.die()


class Script:
    """What the lives of one server do. `options` are those of its next life."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.failure: ChildServerError | None = None
        """Raised by each start, while it is set."""
        self.lives: list[Life] = []

    @property
    def life(self) -> Life:
        """The last one."""
        return self.lives[-1]

    def begin(self, server: StdioServer) -> tuple[type[LeanChild], dict[str, Any]]:
        """The next life, by the command line of the entry and the options here."""
        if self.failure is not None:
            raise self.failure
        given = json.loads(server.args[-1]) if server.args else {}
        kind = Talk if any("talking_child" in arg for arg in server.args) else LeanChild
        return kind, {**given, **self.options}


class Scripts(defaultdict[str, Script]):
    """The scripts of all servers, by key: the factory of their endpoints."""

    def __init__(self, others: NewEndpoint) -> None:
        super().__init__(Script)
        self._others = others

    def new_endpoint(self, server: ServerConfig, options: EndpointOptions) -> Endpoint:
        """In memory for what a lean or a talking child is meant by; all others as ever."""
        is_ours = isinstance(server, StdioServer) and any("_child.py" in arg for arg in server.args)
        if is_ours and "catalogue_child" not in server.args[1]:
            return MemoryEndpoint(server, options, self[server.key])
        return self._others(server, options)


def scripted(app: Aggregator, timings: Timings | None = None) -> Scripts:
    """Let the children of an app live in memory; to be called before it is entered."""
    scripts = Scripts(app._backend.new_endpoint)
    app._backend.new_endpoint = scripts.new_endpoint
    app._backend.timings = timings or QUICK
    return scripts


def scripts_of(app: Aggregator) -> Scripts:
    """Those of an app that `build_aggregator` here has made."""
    scripts: Scripts = app._backend.new_endpoint.__self__  # type: ignore[attr-defined]
    return scripts


def build_aggregator(*args: Any, **settings: Any) -> Aggregator:
    """The package's own, with children in memory."""
    app = fastmcp_aggregator.build_aggregator(*args, **settings)
    scripted(app)
    return app
