"""A reference-counted async context manager: the first user enters it, the last one exits it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import anyio


class SharedContext:
    """Shares what `open_` makes. The task that exits it may be another than entered it, so it has no cancel scope."""

    def __init__(self, open_: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._open = open_
        self._users = 0
        self._life = AsyncExitStack()
        self._changes = asyncio.Lock()

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Use it. Raises what entering it raises; then the next user tries again."""
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
