"""How much the children are to log: as much as somebody wants to see. Each client is shown what it wants of that.

A legacy child is told one level for all its clients. A client that has never named a level is shown everything.
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

_BOUND = 5.0
"""Seconds that a child has to take a new level."""


class Logging:
    """What the children have been told. Owned by one aggregator."""

    def __init__(self, audiences: Callable[[], Iterable[tuple[Child, Collection[Connection]]]]) -> None:
        """`audiences` tells each child that runs, and the legacy clients that it is for."""
        self._audiences = audiences
        self._told: WeakKeyDictionary[ChildSession, str] = WeakKeyDictionary()
        self._spreading: asyncio.Task[None] | None = None

    def connected(self) -> None:
        """A child has a new session, which knows no level yet."""
        self._spreading = asyncio.create_task(self.spread())

    async def spread(self) -> None:
        """A client has named a level, or a child has a new session: tell those that know another."""
        telling = []
        for child, connections in self._audiences():
            wanted = [wanted_log_level(connection) for connection in connections]
            if any(level is not None for level in wanted):
                level = most_verbose([level or LEVELS[0] for level in wanted]) or LEVELS[0]
                telling.append(self._tell(child, level))
        await asyncio.gather(*telling)

    async def at_least(self, child: Child, level: str) -> None:
        """A modern client wants messages from this level on with one request: the child must not log less."""
        session = child.session
        told = self._told.get(session) if session is not None else None
        if told is None or LEVELS.index(level) < LEVELS.index(told):
            await self._tell(child, level)

    async def _tell(self, child: Child, level: str) -> None:
        session = child.session
        if session is None or session.era != "legacy" or "logging" not in session.capabilities:
            return
        if self._told.get(session) == level:
            return
        self._told[session] = level
        try:
            async with asyncio.timeout(_BOUND):
                await session.request(SET_LEVEL.name, {"level": level})
        except (MCPError, TimeoutError) as error:
            logger.debug("server %r does not take the log level %s: %s", child.key, level, error)
