"""A Redis of the test's own, whose answers are waited for however busy the machine is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from support.redis_server import RedisServer
from support.wire import PATIENCE


@pytest_asyncio.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    server = RedisServer(tmp_path, timeout=PATIENCE)
    await server.start()
    yield server
    server.stop()
