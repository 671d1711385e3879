"""What one child offers, read when it comes up and again whenever it says that its lists have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.children.failures import describe
from fastmcp_aggregator.children.listing import read_catalogue
from fastmcp_aggregator.children.session import ChildSession
from fastmcp_aggregator.children.waiting import wait_first

logger = logging.getLogger(__name__)

_LIST_DEADLINE = 60.0
"""Seconds a running child has to list everything again."""
_LISTEN_BOUND = 2.0
"""Seconds that a modern child has to agree to tell of list changes, before its lists are read all the same."""
_CHANGE_QUIET = 0.05
"""Seconds to collect list_changed notifications before listing again."""


class Lists:
    """The lists of one child, over all its lives. `are_due` is set when they are to be read again."""

    def __init__(self, server_key: str, max_tools: int, screen: Callable[[str, Catalogue], Catalogue]) -> None:
        """`screen` says what is taken up of what the child, by its server key, offers."""
        self._key = server_key
        self._max_tools = max_tools
        self._screen = screen
        self._told: frozenset[Kind] = frozenset()
        self._times_read = 0
        self.are_due = asyncio.Event()

    def have_changed(self, kinds: frozenset[Kind]) -> None:
        """The child says so."""
        self._told |= kinds
        self.are_due.set()

    async def listen(self, session: ChildSession, stack: AsyncExitStack) -> None:
        """Begin to hear of changes, before the lists are read: none in between is missed."""
        is_open = asyncio.Event()
        listening = asyncio.create_task(self._hear(session, is_open), name=f"listen:{self._key}")
        stack.push_async_callback(_ended, listening)
        await wait_first(is_open, timeout=_LISTEN_BOUND)

    async def read(self, session: ChildSession) -> Catalogue:
        """Everything that the child offers now, as far as it is taken up.

        Raises:
            MCPError: the child cannot list.
        """
        self._times_read += 1
        offered = await read_catalogue(self._key, session, version=self._times_read, max_tools=self._max_tools)
        return self._screen(self._key, offered)

    async def read_again(
        self, session: ChildSession, before: Catalogue | None
    ) -> tuple[Catalogue, frozenset[Kind]] | None:
        """What is offered after a moment of quiet, and what of it is new; None: the child cannot list.

        Clients are told of what the child says has changed, even if it is as it was before.
        """
        await asyncio.sleep(_CHANGE_QUIET)
        self.are_due.clear()
        told, self._told = self._told, frozenset()
        try:
            async with asyncio.timeout(_LIST_DEADLINE):
                catalogue = await self.read(session)
        except (MCPError, TimeoutError) as error:
            logger.warning("server %r changed its lists, but cannot list: %s", self._key, describe(error))
            return None
        return catalogue, catalogue.differences(before) | told

    async def _hear(self, session: ChildSession, is_open: asyncio.Event) -> None:
        try:
            await session.listen_for_changes(is_open)
        except Exception as error:
            logger.warning("server %r no longer tells when its lists change: %s", self._key, error)
        finally:
            is_open.set()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
