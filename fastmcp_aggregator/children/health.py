"""The health check: ping a silent, idle child. A busy one is never pinged: its calls have deadlines of their own."""

from __future__ import annotations

import asyncio

from fastmcp_aggregator.children.calls import Calls
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.observability.telemetry import untraced


class Health:
    """The health checks of one child. The answers to its calls count as well."""

    def __init__(self, server_key: str, calls: Calls, timings: Timings) -> None:
        self._key = server_key
        self._calls = calls
        self._timings = timings

    @property
    def until_due(self) -> float:
        """Seconds until an idle child is to be pinged; for a busy one the interval begins anew."""
        interval = self._timings.health_interval
        if self._calls.in_flight:
            return interval
        return self._timings.until(self._calls.last_answer + interval)

    async def check(self, session: ChildSession) -> None:
        """Ping the child, if it is due.

        Raises:
            ChildServerError: it did not answer in time.
        """
        if self.until_due > 0:
            return
        try:
            async with asyncio.timeout(self._timings.health_deadline):
                with untraced():
                    await session.probe()
        except TimeoutError:
            reason = f"it did not answer the health check within {self._timings.health_deadline:g} s"
            raise ChildServerError(self._key, "runtime", reason) from None
        self._calls.answered()
