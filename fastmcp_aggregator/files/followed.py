"""Hot reload: a file watcher that has the config read again when it changes, or on demand (SIGHUP).

Editors write a file anew, or write another and rename it; a mounted volume exchanges a link somewhere above. So the
directory is watched, and whatever happens there only leads to a look at the file. The look is repeated from time to
time, for changes that no directory tells of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

from fastmcp_aggregator.config.files import Stamp, stamp_of
from fastmcp_aggregator.errors import ConfigError

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 5.0
"""Seconds between looks when no change is reported."""
QUIET = 0.2
"""Seconds for which a file that has changed must stay as it is before it is read."""


class FollowedFile:
    """Watches one config file. Reloads never overlap."""

    def __init__(self, path: Path, read_again: Callable[[Path], Awaitable[None]]) -> None:
        self._path = path
        self._read_again = read_again
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Request a reload, whether the file has changed or not."""
        self._asked.set()

    @asynccontextmanager
    async def following(self, *, watch: bool) -> AsyncIterator[None]:
        """Read the file whenever that is asked for; with `watch`, whenever it changes too."""
        tasks = [asyncio.create_task(self._obey(), name="reload")]
        if watch:
            tasks.append(asyncio.create_task(self._watch(), name="watch"))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _obey(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self._read_again(self._path)
            except ConfigError as error:
                logger.warning("the config in use is kept, for the new one cannot be used: %s", error)
            except Exception:
                logger.exception("unhandled exception while the config was reloaded; the config in use is kept")

    async def _watch(self) -> None:
        """Request a reload after every change, and once at first: it may have changed since the program read it."""
        seen = None
        async with aclosing(_occasions(self._path.parent)) as occasions:
            async for _ in occasions:
                if seen is None or stamp_of(self._path) != seen:
                    seen = await self._quiet_stamp()
                    self.ask()

    async def _quiet_stamp(self) -> Stamp:
        stamp = stamp_of(self._path)
        while True:
            await asyncio.sleep(QUIET)
            before, stamp = stamp, stamp_of(self._path)
            if stamp == before:
                return stamp


class FollowedFiles:
    """Watches several files; a change of any reloads all."""

    def __init__(self, paths: Sequence[Path], read_again: Callable[[Path], Awaitable[None]]) -> None:
        self._files = [FollowedFile(path, read_again) for path in paths]

    def __bool__(self) -> bool:
        return bool(self._files)

    def ask(self) -> None:
        """Request a reload of all."""
        for file in self._files[:1]:
            file.ask()

    @asynccontextmanager
    async def following(self, *, watch: bool) -> AsyncIterator[None]:
        """Read the files whenever that is asked for; with `watch`, whenever one changes too."""
        async with AsyncExitStack() as stack:
            for file in self._files:
                await stack.enter_async_context(file.following(watch=watch))
            yield


async def _occasions(folder: Path) -> AsyncGenerator[None]:
    """Now, after each change in the folder, and from time to time."""
    yield
    try:
        async with aclosing(_changes_in(folder)) as changes:
            async for _ in changes:
                yield
    except Exception as error:
        logger.warning("%s is looked at every %g s, because it cannot be watched: %s", folder, LOOK_INTERVAL, error)
    while True:
        await asyncio.sleep(LOOK_INTERVAL)
        yield


def _changes_in(folder: Path) -> AsyncGenerator[object]:
    from watchfiles import awatch  # noqa: PLC0415 - only who watches needs it

    interval = int(LOOK_INTERVAL * 1000)
    return awatch(folder, watch_filter=None, recursive=False, rust_timeout=interval, yield_on_timeout=True)
