"""The callers' side of one child: how long a request may take, how many run, and what it means when none is answered.

A request is sent at most once. What the child answers, result or error, goes back unchanged; only what the child did
not say is put into words here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.children.breaker import Breaker
from fastmcp_aggregator.children.remote import RemoteFailure
from fastmcp_aggregator.children.session import ChildSession, OnProgress
from fastmcp_aggregator.errors import ChildServerError


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds without a sign of life after which a request is given up. Progress is a sign of life."""

    call: float
    read: float
    prompt: float

    def of(self, method: str) -> float:
        """The deadline for a method."""
        return {"resources/read": self.read, "prompts/get": self.prompt}.get(method, self.call)


class Calls:
    """All requests to one child, over the sessions of all its lives."""

    def __init__(self, server_key: str, deadlines: Deadlines) -> None:
        self._key = server_key
        self._deadlines = deadlines
        self.breaker = Breaker()
        self.in_flight = 0
        self.last_answer = time.monotonic()
        """When the child last gave a sign of life."""

    async def ask(
        self, session: ChildSession, method: str, params: Mapping[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        """Send one request.

        Raises:
            ChildServerError: the breaker is open, or the child was silent until the deadline.
            ConnectionError: the session ended while the child was asked.
            RemoteFailure: a remote child has not answered, or nothing that can be used.
            MCPError: the child's own error.
        """
        wait = self.breaker.wait(time.monotonic())
        if wait is not None:
            reason = f"it is unavailable: it did not answer several times in a row, next try in {wait:.0f} s"
            raise ChildServerError(self._key, "runtime", reason, retry_in=wait)
        self.in_flight += 1
        try:
            return await self._within_deadline(session, method, params, on_progress)
        except asyncio.CancelledError:
            self.breaker.abandoned()
            raise
        finally:
            self.in_flight -= 1

    async def _within_deadline(
        self, session: ChildSession, method: str, params: Mapping[str, Any], on_progress: OnProgress | None
    ) -> dict[str, Any]:
        limit = self._deadlines.of(method)

        async def still_alive(progress: float, total: float | None, message: str | None) -> None:
            scope.deadline = anyio.current_time() + limit
            self.answered()
            if on_progress is not None:
                await on_progress(progress, total, message)

        with anyio.move_on_after(limit) as scope:
            try:
                result = await session.request(method, params, on_progress=still_alive if on_progress else None)
            except RemoteFailure as error:
                if error.failure.is_answer:
                    self.answered()
                else:
                    self.failed()
                raise
            except MCPError as error:
                if session.is_over(error):
                    self.failed()
                    raise ConnectionError from error
                self.answered()
                raise
            self.answered()
            return result
        self.failed()
        raise ChildServerError(self._key, "runtime", f"it did not answer {method} within {limit:g} s")

    def answered(self) -> None:
        """The child gave a sign of life."""
        self.last_answer = time.monotonic()
        self.breaker.succeeded()

    def failed(self) -> None:
        """The child was silent, or gone."""
        self.breaker.failed(time.monotonic())
