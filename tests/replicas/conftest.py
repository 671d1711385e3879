"""A Redis of the test's own, whose answers are waited for however busy the machine is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.redis_server import RedisServer
from support.wire import PATIENCE

from fastmcp_aggregator.replicas import redis_connection


@pytest_asyncio.fixture
async def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisServer]:
    monkeypatch.setattr(redis_connection, "TIMEOUT", PATIENCE)
    server = RedisServer(tmp_path)
    await server.start()
    yield server
    server.stop()
