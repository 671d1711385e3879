"""Something that is open while anybody uses it: opened by the first user, and closed by the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import anyio


class SharedContext:
    """`open_` is entered in the task of the first user, and left in that of the last."""

    def __init__(self, open_: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._open = open_
        self._users = 0
        self._life = AsyncExitStack()
        self._changes = asyncio.Lock()

    @property
    def is_changing(self) -> bool:
        """Whether it is being opened or closed."""
        return self._changes.locked()

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """While somebody uses it. Raises what opening it raises; then it is not open."""
        async with self._changes:
            if self._users == 0:
                await self._life.enter_async_context(self._open())
            self._users += 1
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._changes:
                    self._users -= 1
                    if self._users == 0:
                        await self._life.aclose()
