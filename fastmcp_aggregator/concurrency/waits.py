"""Waiting for the first of several events, while tasks run, and for steps between which others have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


async def wait_first(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Return when the first of these events is set, or after so many seconds."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=timeout)
    finally:
        for wait in waits:
            wait.cancel()


@asynccontextmanager
async def meanwhile(*tasks: asyncio.Future[Any]) -> AsyncIterator[None]:
    """While these tasks run; at the end they are cancelled, and waited for."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def in_turns(steps: Generator[None, None, T]) -> T:
    """The result of these steps; other tasks run after each but the last."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
