"""The log levels of legacy children: each child logs at the most verbose level that one of its clients wants.

A legacy child has one level for all its clients. A client that has never named a level is shown everything.
A modern child is told with each request, by `ChildSession`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from weakref import WeakKeyDictionary

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.callers.caller import wanted_log_level
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.protocol.log_levels import LEVELS, most_verbose
from fastmcp_aggregator.protocol.methods import SET_LEVEL

logger = logging.getLogger(__name__)

_SET_TIMEOUT = 5.0


class ChildLogLevels:
    """The levels that the children are set to. Owned by one `Runtime`."""

    def __init__(self, clients: Callable[[], Iterable[tuple[Child, Collection[Connection]]]]) -> None:
        """`clients` yields each running child with its legacy clients."""
        self._clients = clients
        self._levels: WeakKeyDictionary[ChildSession, str] = WeakKeyDictionary()
        self._updating: asyncio.Task[None] | None = None

    def connected(self) -> None:
        """Set the level of a child's new session."""
        self._updating = asyncio.create_task(self.update())

    async def update(self) -> None:
        """Set the level of every child that is at another one."""
        setting = []
        for child, connections in self._clients():
            wanted = [wanted_log_level(connection) for connection in connections]
            if any(level is not None for level in wanted):
                level = most_verbose([level or LEVELS[0] for level in wanted]) or LEVELS[0]
                setting.append(self._set_level(child, level))
        await asyncio.gather(*setting)

    async def ensure(self, child: Child, level: str) -> None:
        """Make a child log at this level or a more verbose one, for a request of a modern client."""
        session = child.session
        told = self._levels.get(session) if session is not None else None
        if told is None or LEVELS.index(level) < LEVELS.index(told):
            await self._set_level(child, level)

    async def _set_level(self, child: Child, level: str) -> None:
        session = child.session
        if session is None or session.era != "legacy" or "logging" not in session.capabilities:
            return
        if self._levels.get(session) == level:
            return
        self._levels[session] = level
        try:
            async with asyncio.timeout(_SET_TIMEOUT):
                await session.request(SET_LEVEL.name, {"level": level})
        except (MCPError, TimeoutError) as error:
            logger.debug("server %r does not take the log level %s: %s", child.key, level, error)
