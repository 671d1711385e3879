"""A span for each request that we forward, where somebody collects spans.

Theory. The SDK's client sessions make a span for each request to a child and tell it the child in `_meta` (SEP-414), so
it has to have the right parent: the span of the client's request, which in turn is below the one that the client tells.
FastMCP makes spans for the requests that it serves; those that we answer never get there, so theirs is made here, with
the SDK's middleware for it. It is private to the SDK. While nobody collects spans, what the client tells passes to the
child as it came.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import ServerRequestContext

from fastmcp_aggregator.observability.telemetry import is_collecting

Result = dict[str, Any]

_make_span = OpenTelemetryMiddleware()


async def in_span(ctx: ServerRequestContext[Any, Any], forward: Callable[[], Awaitable[Result]]) -> Result:
    """The result of `forward`, which is done inside of the request's span.

    Raises:
        Exception: whatever `forward` raises.
    """
    if not is_collecting():
        return await forward()
    result: Result = await _make_span(ctx, lambda _: forward())  # type: ignore[assignment]
    return result
