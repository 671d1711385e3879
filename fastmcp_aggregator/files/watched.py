"""The files of servers' own code: a server is restarted when something in the paths that its `watch` names changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path

from fastmcp_aggregator.concurrency.waits import meanwhile

logger = logging.getLogger(__name__)


def watching(
    paths: Mapping[str, Sequence[Path]], on_change: Callable[[str], object]
) -> AbstractAsyncContextManager[None]:
    """Call `on_change` with a server key after each change in one of its files and folders."""
    tasks = [asyncio.create_task(_watch(key, of_key, on_change), name=f"code:{key}") for key, of_key in paths.items()]
    return meanwhile(*tasks)


async def _watch(key: str, paths: Sequence[Path], on_change: Callable[[str], object]) -> None:
    try:
        async with aclosing(_changes_in(paths)) as changes:
            async for _ in changes:
                logger.info("server %r is restarted, because its files have changed", key)
                on_change(key)
    except Exception as error:
        logger.warning("server %r is not restarted when its files change, for they cannot be watched: %s", key, error)


def _changes_in(paths: Sequence[Path]) -> AsyncGenerator[object]:
    """Changes, those within half a second as one, without those of caches, environments and editors' own files."""
    from watchfiles import awatch  # noqa: PLC0415 - only who watches needs it

    return awatch(*paths, step=500)
