"""Concurrency and retries of a tool's calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import stamina

from fastmcp_aggregator.service.limits import MOST_ATTEMPTS

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])
Errors = type[Exception] | tuple[type[Exception], ...]


def runs(*, concurrent: bool = False, attempts: int = 1, on: Errors = OSError) -> Callable[[Function], Function]:
    """Mark an async tool, below `@mcp.tool`: without it, its calls run one at a time, and each is tried once.

    Args:
        concurrent: Whether calls may run together.
        attempts: How often a call is tried, in all, from 1 to 5. The pauses in between grow.
        on: The errors after which it is tried again.
    """
    if not 1 <= attempts <= MOST_ATTEMPTS:
        raise ValueError(f"attempts must be a number from 1 to {MOST_ATTEMPTS}, not {attempts}")

    def mark(function: Function) -> Function:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"the tool {getattr(function, '__name__', function)} must be an async function")
        tried: Any = stamina.retry(on=on, attempts=attempts, timeout=None)(function) if attempts > 1 else function

        @functools.wraps(function)
        async def marked(*args: Any, **kwargs: Any) -> Any:
            return await tried(*args, **kwargs)

        marked.is_concurrent = concurrent  # type: ignore[attr-defined]
        return marked  # type: ignore[return-value]

    return mark


def is_concurrent(function: object) -> bool:
    """True if calls of the tool may run together."""
    return bool(getattr(function, "is_concurrent", False))
