"""The supervisor of all children: started in config order, stopped in parallel, each in a task of its own.

A new config exchanges only the children that it changes. A child is closed before its successor begins, so that at most
one process of a server key exists; nothing else waits for that.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from fastmcp_aggregator.children.child import Child, ChildContext
from fastmcp_aggregator.children.endpoint import Launch, endpoint_for
from fastmcp_aggregator.children.process.process import ChildProcess, Launched
from fastmcp_aggregator.config import McpConfig, ServerConfig, StdioServer
from fastmcp_aggregator.settings.options import ChildOptions, EndpointOptions
from fastmcp_aggregator.status.server_status import ServerStatus

logger = logging.getLogger(__name__)

_REMOVED = "it was removed from the config"
_CHANGED = "its entry in the config was changed"
_RESTARTED = "it is being restarted"
_HALTED = "an operator has stopped it"


class Supervisor:
    """Owns the children's tasks from `start` to `stop`."""

    def __init__(
        self,
        config: McpConfig,
        options: Callable[[ServerConfig], ChildOptions],
        context: ChildContext,
        launched: Launched | None,
    ) -> None:
        self._options = options
        self._context = context
        self._tasks: dict[Child, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._variables = contextvars.copy_context()
        """The context variables of the children's tasks, whichever task brings a new config."""
        first = replace(context, new_endpoint=partial(endpoint_for, launch=_once(launched))) if launched else None
        early = launched or {}
        self.children = {
            key: self._child(server, first if key in early else None) for key, server in config.servers.items()
        }
        """Children by server key, in config order."""

    def start(self) -> None:
        """Start every child, a few processes at a time; returns without waiting for any."""
        for child in self.children.values():
            self._begin(child, child.run())

    def exchange(self, config: McpConfig) -> None:
        """Make the children those of this config, without waiting for any. One whose entry is equal is not touched."""
        if self._is_stopping:
            return
        old, self.children = self.children, {}
        for key, server in config.servers.items():
            is_kept = key in old and old[key].server == server
            self.children[key] = old[key] if is_kept else self._child(server)
        closing: dict[str, asyncio.Task[None]] = {}
        for key, child in old.items():
            if self.children.get(key) is not child:
                if key in self.children:
                    self.children[key].offer.inherit(child.offer)
                self._context.events.retired(child)
                closing[key] = self.retire(child, _CHANGED if key in self.children else _REMOVED)
        for key, child in self.children.items():
            if old.get(key) is not child:
                self._begin(child, _run_after(closing.get(key), child))

    def restart(self, key: str) -> None:
        """Exchange a child for one of the same entry, which starts at once; its instances end.

        Raises:
            KeyError: there is no such child.
        """
        old = self.children[key]
        if self._is_stopping:
            return
        child = self.children[key] = self._child(old.server)
        child.offer.inherit(old.offer)
        self._context.events.retired(old)
        child.start_awake()
        self._begin(child, _run_after(self.retire(old, _RESTARTED), child))

    def halt(self, key: str) -> None:
        """Stop a child until it is restarted, or its entry is another; its instances end.

        Raises:
            KeyError: there is no such child.
        """
        child = self.children[key]
        if not self._is_stopping:
            self._context.events.retired(child)
            self.retire(child, _HALTED)
            child.offer.leave()

    def _child(self, server: ServerConfig, context: ChildContext | None = None) -> Child:
        return Child(server, self._options(server), context or self._context)

    def begin(self, child: Child) -> None:
        """Run one more child, which has no predecessor."""
        if not self._is_stopping:
            self._begin(child, child.run())

    def retire(self, child: Child, why: str) -> asyncio.Task[None]:
        """Close one child; the task ends when it is closed."""
        child.stop(why)
        closing = asyncio.create_task(self._close([child]), name=f"closing:{child.key}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    async def exchanged(self) -> None:
        """Wait until every child that was replaced or removed is closed."""
        if self._closing:
            await asyncio.wait(set(self._closing))

    async def settling(self) -> AsyncIterator[ServerStatus]:
        """The status of each child, as soon as its first start has succeeded or failed."""
        waits: dict[asyncio.Task[Any], Child] = {}
        known: set[Child] = set()
        try:
            while True:
                for child in self.children.values():
                    if child not in known:
                        known.add(child)
                        waits[asyncio.create_task(child.settled.wait())] = child
                if not waits:
                    return
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for child in [waits.pop(wait) for wait in list(waits) if wait in done]:
                    if self.children.get(child.key) is child:
                        yield child.status()
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self) -> None:
        """Close all children in parallel, each within a bound. Nothing that was started is left running."""
        self._is_stopping = True
        children = list(self._tasks)
        for child in children:
            child.stop()
        await self._close(children)
        await self.exchanged()

    def _begin(self, child: Child, life: Coroutine[Any, Any, None]) -> None:
        self._tasks[child] = asyncio.create_task(life, name=f"child:{child.key}", context=self._variables.copy())

    async def _close(self, children: Sequence[Child]) -> None:
        """Wait for children that were told to stop; after a bound, cancel and kill them."""
        tasks = [self._tasks[child] for child in children if child in self._tasks]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._context.timings.stop_bound)
        for task in late:
            logger.warning("%s did not close in time", task.get_name())
            task.cancel()
        for child in children:
            child.kill()
        for task in tasks:
            with suppress(asyncio.CancelledError, Exception):
                await asyncio.wait_for(asyncio.shield(task), 1.0)
        for child in children:
            self._tasks.pop(child, None)


async def _run_after(closing: asyncio.Task[None] | None, child: Child) -> None:
    """Run a child once its predecessor is closed."""
    if closing is not None:
        await asyncio.wait({closing})
    await child.run()


def _once(launched: Launched) -> Launch:
    """Hand out each process that was started early once, and start all others."""
    early = dict(launched)

    async def launch(server: StdioServer, options: EndpointOptions) -> ChildProcess:
        started = early.pop(server.key, None)
        return await (started or ChildProcess.spawn(server, options))

    return launch
