"""Telling live clients that a list has changed, in both eras.

A legacy client is told on its connection's own channel; a modern one on the `subscriptions/listen` stream that it
opened. Changes are collected for a moment, so that a child that restarts quickly costs a client one refresh.
"""

from __future__ import annotations

import asyncio

from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.library_internals import connection_of

_COLLECT = 0.1
"""Seconds between the first change and the notification."""
_SEND_BOUND = 1.0
"""Seconds that one client has to take a notification before it is passed over."""

_METHODS = {
    "tools": "notifications/tools/list_changed",
    "resources": "notifications/resources/list_changed",
    "prompts": "notifications/prompts/list_changed",
}
_EVENTS: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "resources": ResourcesListChanged(),
    "prompts": PromptsListChanged(),
}
_LIST_OF = {Kind.TOOL: "tools", Kind.RESOURCE: "resources", Kind.TEMPLATE: "resources", Kind.PROMPT: "prompts"}


class Audience:
    """The clients that are connected now, and what they are to be told. Owned by one run of the aggregator."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.listen_handler = ListenHandler(self.bus)
        self.connections: set[Connection] = set()
        """Those of legacy clients."""
        self._changed: set[str] = set()
        self._telling: asyncio.Task[None] | None = None

    def join(self, session: ServerSession) -> None:
        """A legacy client has initialised; it is told of changes until its connection ends."""
        connection = connection_of(session)
        if connection not in self.connections:
            self.connections.add(connection)
            connection.exit_stack.callback(self.connections.discard, connection)

    def lists_changed(self, kinds: frozenset[Kind]) -> None:
        """Some components of these kinds came, went or changed."""
        self._changed |= {_LIST_OF[kind] for kind in kinds}
        if self._changed and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(), name="list_changed")

    async def close(self) -> None:
        """End what is still being told, and the listen streams."""
        self.listen_handler.close()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        self._changed.clear()

    async def _tell(self) -> None:
        while self._changed:
            await asyncio.sleep(_COLLECT)
            changed, self._changed = sorted(self._changed), set()
            for name in changed:
                await self.bus.publish(_EVENTS[name])
            ready = [connection for connection in self.connections if connection.initialized.is_set()]
            await asyncio.gather(*(self._notify(connection, changed) for connection in ready))

    async def _notify(self, connection: Connection, changed: list[str]) -> None:
        try:
            async with asyncio.timeout(_SEND_BOUND):
                for name in changed:
                    await connection.notify(_METHODS[name], None)
        except TimeoutError:
            return
