"""All children of one aggregator: started together, stopped together, each in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.child import Child, ChildOptions
from fastmcp_aggregator.children.launching import Launched
from fastmcp_aggregator.children.process import EXIT_GRACE, REAP_WAIT, TERM_GRACE, ChildProcess
from fastmcp_aggregator.children.status import ServerStatus
from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.errors import ChildServerError

logger = logging.getLogger(__name__)

_STOP_BOUND = EXIT_GRACE + TERM_GRACE + REAP_WAIT + 1.0
"""Seconds after which a child that is still being closed is abandoned; its process group is killed by then."""


class Supervisor:
    """Owns the children's tasks from `start` to `stop`."""

    def __init__(
        self,
        config: McpConfig,
        options: Callable[[str], ChildOptions],
        on_change: Callable[[Child, frozenset[Kind]], None],
        launched: Launched | None = None,
    ) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        early = dict(launched or {})

        async def launch(server: StdioServer, line_limit: int) -> ChildProcess:
            started = early.pop(server.key, None)
            return await (started or ChildProcess.spawn(server, line_limit))

        self.children: dict[str, Child] = {}
        for key, server in config.servers.items():
            self.children[key] = Child(server, options(key), on_change, launch)

    def start(self) -> None:
        """Start every child at once; returns without waiting for any."""
        self._tasks = [asyncio.create_task(child.run(), name=f"child:{key}") for key, child in self.children.items()]

    async def settling(self) -> AsyncIterator[ServerStatus]:
        """The status of each child, as soon as its first start has succeeded or failed."""

        async def settled(child: Child) -> ServerStatus:
            await child.settled.wait()
            return child.status()

        waits = [asyncio.create_task(settled(child)) for child in self.children.values()]
        try:
            for status in asyncio.as_completed(waits):
                yield await status
        finally:
            for wait in waits:
                wait.cancel()

    async def settled(self) -> None:
        """Wait until the first start of every child has succeeded or failed."""
        for child in self.children.values():
            await child.settled.wait()

    def failures(self) -> Sequence[ChildServerError]:
        """Why each child that is not running is not, in config order."""
        return [
            child.last_failure
            for child in self.children.values()
            if child.last_failure is not None and not child.is_serving
        ]

    async def stop(self) -> None:
        """Close all children in parallel, each within a bound. Nothing that was started is left running."""
        for child in self.children.values():
            child.stop()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=_STOP_BOUND)
        for task in late:
            logger.warning("%s did not close in time", task.get_name())
            task.cancel()
        for child in self.children.values():
            child.kill()
        for task in self._tasks:
            with suppress(asyncio.CancelledError, Exception):
                await asyncio.wait_for(asyncio.shield(task), 1.0)
