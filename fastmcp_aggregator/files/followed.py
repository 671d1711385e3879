"""Hot reload: a file watcher that has config files read again when one changes, or on demand (SIGHUP).

Editors write a file anew, or write another and rename it; a mounted volume exchanges a link somewhere above. So the
directory is watched, and whatever happens there only leads to a look at the file. The look is repeated from time to
time, for changes that no directory tells of.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fastmcp_aggregator.concurrency.waits import meanwhile
from fastmcp_aggregator.config.documents import Stamp, stamp_of
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.files.permissions import warn_of, weaknesses

logger = logging.getLogger(__name__)

QUIET = 0.2
"""Seconds for which a file that has changed must stay as it is before it is read."""
_NEXT_LOOK = 0.5
"""Seconds after something else in the folder has changed: a log that is written there may do so all the time."""


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A file that has changed and cannot be used as it is now: why, and since when, in seconds since 1970."""

    problem: ConfigError
    since: float = field(default_factory=time.time)
    _began: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        """Seconds since it was refused."""
        return time.monotonic() - self._began

    def with_problem(self, problem: ConfigError) -> RefusedFile:
        """The same refusal, for what the file says by now."""
        return replace(self, problem=problem)


class FollowedFiles:
    """Watches config files; a change of any reloads all. Reloads never overlap."""

    def __init__(
        self, paths: Sequence[Path], read_again: Callable[[], Awaitable[object]], *, look_interval: float = 5.0
    ) -> None:
        """`look_interval` is the seconds between looks when no change is reported."""
        self._paths = paths
        self._read_again = read_again
        self._look_interval = look_interval
        self._asked = asyncio.Event()
        self._weaknesses: set[tuple[Path, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._paths)

    def ask(self) -> None:
        """Request a reload, whether a file has changed or not."""
        self._asked.set()

    @asynccontextmanager
    async def following(self, *, watch: bool) -> AsyncIterator[None]:
        """Read the files whenever that is asked for; with `watch`, whenever one changes too."""
        self._look_at_permissions()
        tasks = [asyncio.create_task(self._obey(), name="reload")] if self._paths else []
        if watch:
            tasks += [asyncio.create_task(self._watch(path), name="watch") for path in self._paths]
        async with meanwhile(*tasks):
            yield

    async def _obey(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._look_at_permissions()
            try:
                await self._read_again()
            except ConfigError as error:
                logger.warning("the config in use is kept, for the new one cannot be used: %s", error)
            except Exception:
                logger.exception("unhandled exception while the config was reloaded; the config in use is kept")

    def _look_at_permissions(self) -> None:
        """Warn of each way in which others could have servers of theirs started, once."""
        before, self._weaknesses = self._weaknesses, {(path, how) for path in self._paths for how in weaknesses(path)}
        for path, how in sorted(self._weaknesses - before):
            warn_of(path, how)

    async def _watch(self, path: Path) -> None:
        """Request a reload after every change, and once at first: it may have changed since the program read it."""
        seen = None
        async with aclosing(_occasions(path.parent, self._look_interval)) as occasions:
            async for _ in occasions:
                if seen is None or stamp_of(path) != seen:
                    seen = await _quiet_stamp(path)
                    self.ask()
                else:
                    await asyncio.sleep(_NEXT_LOOK)


async def _quiet_stamp(path: Path) -> Stamp:
    stamp = stamp_of(path)
    while True:
        await asyncio.sleep(QUIET)
        before, stamp = stamp, stamp_of(path)
        if stamp == before:
            return stamp


async def _occasions(folder: Path, interval: float) -> AsyncGenerator[None]:
    """Now, after each change in the folder, and from time to time."""
    yield
    try:
        async with aclosing(_changes_in(folder, interval)) as changes:
            async for _ in changes:
                yield
    except Exception as error:
        logger.warning("%s is polled every %g s, because it cannot be watched: %s", folder, interval, error)
    while True:
        await asyncio.sleep(interval)
        yield


def _changes_in(folder: Path, interval: float) -> AsyncGenerator[object]:
    from watchfiles import awatch  # noqa: PLC0415 - only who watches needs it

    milliseconds = int(interval * 1000)
    return awatch(folder, watch_filter=None, recursive=False, rust_timeout=milliseconds, yield_on_timeout=True)
