"""Whether a silent child is still there. A busy one is never asked: its calls have deadlines of their own."""

from __future__ import annotations

import asyncio
import time

from fastmcp_aggregator.children.calls import Calls
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.errors import ChildServerError

HEALTH_INTERVAL = 30.0
"""Seconds of silence after which an idle child is asked for a sign of life."""
HEALTH_DEADLINE = 10.0
"""Seconds it has to give one."""


class Health:
    """The signs of life of one child, whose callers have theirs from its answers."""

    def __init__(self, server_key: str, calls: Calls) -> None:
        self._key = server_key
        self._calls = calls

    @property
    def until_due(self) -> float:
        """Seconds until an idle child is to be asked for a sign of life; those of a busy one begin anew."""
        if self._calls.in_flight:
            return HEALTH_INTERVAL
        return max(0.0, self._calls.last_answer + HEALTH_INTERVAL - time.monotonic())

    async def check(self, session: ChildSession) -> None:
        """Ask the child for a sign of life, if it is due.

        Raises:
            ChildServerError: there was none.
        """
        if self.until_due > 0:
            return
        try:
            async with asyncio.timeout(HEALTH_DEADLINE):
                await session.probe()
        except TimeoutError:
            reason = f"it gave no sign of life within {HEALTH_DEADLINE:g} s"
            raise ChildServerError(self._key, "runtime", reason) from None
        self._calls.answered()
