"""Request middleware: every call, read and prompt is admitted, queued, run under a deadline, and bounded in size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

import anyio
import mcp_types
from fastmcp.prompts import PromptResult
from fastmcp.resources import ResourceResult
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.server.middleware.rate_limiting import TokenBucketRateLimiter
from fastmcp.tools import Tool, ToolResult
from pydantic_core import to_json

from fastmcp_aggregator.service import errors
from fastmcp_aggregator.service.behaviour import is_concurrent
from fastmcp_aggregator.service.limits import MAX_RUNNING, MAX_WAITING, STATES, ServiceState
from fastmcp_aggregator.service.settings import ServiceSettings

AnyResult = TypeVar("AnyResult", ToolResult, ResourceResult, PromptResult)


class Lifecycle:
    """The state of the server."""

    def __init__(self) -> None:
        self.state: ServiceState = STATES[0]

    def advance(self, to: ServiceState) -> None:
        """Go on to the next state.

        Raises: RuntimeError, if another one comes next.
        """
        if STATES.index(to) != STATES.index(self.state) + 1:
            raise RuntimeError(f"the server is {self.state}, and cannot become {to}")
        self.state = to


class Requests(Middleware):
    """The requests of one run of the server, from `begin` to `end`."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self.lifecycle = Lifecycle()
        self._bucket = _bucket(settings)
        self._slots = anyio.Semaphore(MAX_RUNNING)
        self._turns: dict[str, anyio.Lock] = {}
        self._timeouts: dict[str, float] = {}
        self._in_flight = 0
        self._waiting = 0
        self._idle = anyio.Event()

    def begin(self, tools: Sequence[Tool]) -> None:
        """Start to accept requests for these tools."""
        self._turns = {tool.name: anyio.Lock() for tool in tools if not is_concurrent(getattr(tool, "fn", None))}
        self._timeouts = {tool.name: tool.timeout or self._settings.tool_timeout for tool in tools}
        self.lifecycle.advance("ready")

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, and wait until the others are answered, for so many seconds at most."""
        if self.lifecycle.state == "ready":
            self.lifecycle.advance("shutting_down")
        with anyio.move_on_after(seconds):
            while self._in_flight:
                self._idle = anyio.Event()
                await self._idle.wait()

    def end(self) -> None:
        """No request is answered any more."""
        if self.lifecycle.state == "ready":
            self.lifecycle.advance("shutting_down")
        self.lifecycle.advance("stopped")

    async def on_call_tool(
        self,
        context: MiddlewareContext[mcp_types.CallToolRequestParams],
        call_next: CallNext[mcp_types.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        name = context.message.name
        if name not in self._timeouts:
            raise errors.unknown_tool(name)
        turn = self._turns.get(name)
        return await self._answered(f"the tool {name}", self._timeouts[name], lambda: call_next(context), turn)

    async def on_read_resource(
        self,
        context: MiddlewareContext[mcp_types.ReadResourceRequestParams],
        call_next: CallNext[mcp_types.ReadResourceRequestParams, ResourceResult],
    ) -> ResourceResult:
        uri = str(context.message.uri)
        timeout = self._settings.resource_timeout
        return await self._answered(f"the resource {uri}", timeout, lambda: call_next(context))

    async def on_get_prompt(
        self,
        context: MiddlewareContext[mcp_types.GetPromptRequestParams],
        call_next: CallNext[mcp_types.GetPromptRequestParams, PromptResult],
    ) -> PromptResult:
        name = context.message.name
        timeout = self._settings.prompt_timeout
        result = await self._answered(f"the prompt {name}", timeout, lambda: call_next(context))
        if not result.messages:
            raise errors.no_messages(name)
        return result

    async def _answered(
        self, what: str, timeout: float, work: Callable[[], Awaitable[AnyResult]], turn: anyio.Lock | None = None
    ) -> AnyResult:
        await self._admit()
        self._in_flight += 1
        try:
            async with AsyncExitStack() as held:
                await self._wait(held, turn)
                result = await _in_time(what, timeout, work)
            if len(to_json(result, fallback=str)) > self._settings.max_response_size_mb * 1_000_000:
                raise errors.too_large(what, self._settings.max_response_size_mb)
            return result
        finally:
            self._in_flight -= 1
            self._idle.set()

    async def _admit(self) -> None:
        if self.lifecycle.state != "ready":
            raise errors.not_serving(self.lifecycle.state)
        if self._bucket is not None and not await self._bucket.consume():
            raise errors.too_fast(self._settings.rate_limit_per_minute, self._settings.rate_limit_burst)
        if self._waiting >= MAX_WAITING:
            raise errors.too_many(self._waiting)

    async def _wait(self, held: AsyncExitStack, turn: anyio.Lock | None) -> None:
        """Wait for the tool's turn first: what waits for it keeps no slot from others."""
        self._waiting += 1
        try:
            if turn is not None:
                await held.enter_async_context(turn)
            await held.enter_async_context(self._slots)
        finally:
            self._waiting -= 1


def _bucket(settings: ServiceSettings) -> TokenBucketRateLimiter | None:
    """The rate limiter for HTTP; None on stdio, where the only client has started this process."""
    if settings.transport == "stdio":
        return None
    return TokenBucketRateLimiter(settings.rate_limit_burst, settings.rate_limit_per_minute / 60)


async def _in_time(what: str, timeout: float, work: Callable[[], Awaitable[AnyResult]]) -> AnyResult:
    with anyio.move_on_after(timeout):
        return await work()
    raise errors.timed_out(what, timeout)
