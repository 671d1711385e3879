"""Accepting connections when no file descriptors are left: asyncio tries again every second, and says so each time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastmcp_aggregator.children.descriptors import shortage
from fastmcp_aggregator.pipe.bucket import TokenBucket

logger = logging.getLogger(__name__)

_REPORTS_PER_SECOND = 1 / 60


@contextmanager
def shortage_told() -> Iterator[None]:
    """While a server accepts connections: that it cannot is told once a minute, in our words."""
    loop = asyncio.get_running_loop()
    others = loop.get_exception_handler()
    reports = TokenBucket(burst=1, rate=_REPORTS_PER_SECOND)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        lacking = shortage(context.get("exception")) if "socket" in context else None
        if lacking is None:
            (others or type(loop).default_exception_handler)(loop, context)
        elif reports.take(loop.time()):
            logger.warning("new connections wait until others are closed: %s", lacking)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(others)
