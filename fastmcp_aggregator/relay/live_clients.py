"""Live clients, and how they are notified that a list has changed, in both eras.

A legacy client is told on its connection's own channel; a modern one on the `subscriptions/listen` stream that it
opened. Changes are coalesced for a moment, so that a child that restarts quickly costs a client one refresh.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary

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
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from fastmcp_aggregator.callers.fanout import Fanout, Send
from fastmcp_aggregator.callers.outbox import outbox_of
from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.library_internals import connection_of
from fastmcp_aggregator.protocol.methods import LIST_CHANGED

_COALESCE = 0.1
"""Seconds between the first change and the notification."""

_EVENTS: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "resources": ResourcesListChanged(),
    "prompts": PromptsListChanged(),
}


class _Stream:
    """One `subscriptions/listen` stream, its principal, and the client, if it is one of many."""

    def __init__(self, principal: Hashable, client: Hashable) -> None:
        self.principal = principal
        self.client = client
        self.bus = InMemorySubscriptionBus()
        self.handler = ListenHandler(self.bus)


class LiveClients:
    """The connected clients of one virtual server, and the changes they are yet to be notified of."""

    def __init__(self, fanout: Fanout, *, most_streams: int = 1024) -> None:
        """One principal has `most_streams` streams at most."""
        self._most_streams = most_streams
        self._fanout = fanout
        self._streams: dict[Hashable, _Stream] = {}
        """Streams of modern clients."""
        self._open: Counter[Hashable] = Counter()
        """Open streams by principal."""
        self.connections: set[Connection] = set()
        """Connections of legacy clients."""
        self._principals: WeakKeyDictionary[Connection, Hashable] = WeakKeyDictionary()
        self.sessions: dict[str, Connection] = {}
        self._changed: dict[Hashable, set[str]] = {}
        """Changed lists by principal; those under None are for everybody."""
        self._notifying: asyncio.Task[None] | None = None

    @contextmanager
    def listening(self, principal: Hashable, name: Hashable, client: Hashable = None) -> Iterator[ListenHandler]:
        """Serve one stream of a modern client, while it is open. `name` is for `publish`, `client` for `tell`.

        Raises:
            MCPError: the principal has too many.
        """
        if self._open[principal] >= self._most_streams:
            raise MCPError(INTERNAL_ERROR, "Subscription limit reached")
        self._open[principal] += 1
        stream = self._streams[name] = _Stream(principal, client)
        try:
            yield stream.handler
        finally:
            del self._streams[name]
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]

    def add(self, session: ServerSession, principal: Hashable = None) -> None:
        """Notify a legacy client, which has initialised, of changes until its connection ends."""
        connection = connection_of(session)
        self._principals[connection] = principal
        if connection not in self.connections:
            self.connections.add(connection)
            connection.exit_stack.callback(self._forget, connection)
            if connection.session_id is not None:
                self.sessions[connection.session_id] = connection

    def _forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.sessions.pop(connection.session_id or "", None)

    def lists_changed(self, kinds: frozenset[Kind], principal: Hashable = None) -> None:
        """Some components of these kinds came, went or changed, for everybody, or for one principal alone."""
        names = {SPECS[kind].capability for kind in kinds}
        if names:
            self._changed.setdefault(principal, set()).update(names)
        if self._changed and (self._notifying is None or self._notifying.done()):
            self._notifying = asyncio.create_task(self._notify_all(), name="list_changed")

    async def tell(self, connection: Connection | None, kinds: frozenset[Kind], client: Hashable = None) -> None:
        """Notify one client of changes that concern it alone: a legacy one on its connection; a modern one, where that
        is None, on its streams.
        """
        for name in sorted({SPECS[kind].capability for kind in kinds}):
            if connection is not None:
                await self._send(connection, name)
            else:
                theirs = [each for each in self._streams.values() if each.client is client]
                await self._publish_to(theirs, _EVENTS[name])

    async def publish(self, event: ServerEvent, names: Collection[Hashable]) -> None:
        await self._publish_to([self._streams[name] for name in names if name in self._streams], event)

    async def _publish_to(self, streams: Collection[_Stream], event: ServerEvent) -> None:
        for stream in streams:
            await stream.bus.publish(event)

    async def close(self) -> None:
        """Cancel pending notifications, and end the listen streams."""
        for stream in list(self._streams.values()):
            stream.handler.close()
        if self._notifying is not None:
            self._notifying.cancel()
            await asyncio.gather(self._notifying, return_exceptions=True)
        self._changed.clear()

    async def _notify_all(self) -> None:
        while self._changed:
            await asyncio.sleep(_COALESCE)
            changed, self._changed = self._changed, {}
            for principal, names in changed.items():
                self._notify_of(principal, sorted(names))

    def _notify_of(self, principal: Hashable, names: list[str]) -> None:
        everybody = {*self._open, *map(self._principals.get, self.connections)}
        for each in everybody if principal is None else {principal}:
            for name in names:
                self._fanout.put(each, (self, name), partial(self._sends, each, name))

    def _sends(self, principal: Hashable, name: str) -> Iterator[Send]:
        for stream in [each for each in self._streams.values() if each.principal == principal]:
            yield partial(stream.bus.publish, _EVENTS[name])
        theirs = [each for each in self.connections if self._principals.get(each) == principal]
        for connection in theirs:
            if connection in self.connections and connection.initialized.is_set():
                yield partial(self._send, connection, name)

    async def _send(self, connection: Connection, name: str) -> None:
        outbox_of(connection).put_once(LIST_CHANGED[name])
