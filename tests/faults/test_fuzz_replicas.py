"""Anything in Redis, in the channels of replicas and in place of their values: calls are answered, little is logged."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from fuzzing import ENVIRONMENT, SCALE, Draw, Watch, draws
from garbage import Garbage
from support.harness import ServerProcess, config, free_port, lean, running, until
from support.processes import complaints
from support.redis_server import RedisServer, needs_redis
from test_fuzz_http import call

pytestmark = [needs_redis, pytest.mark.fuzz]

BATCHES = 10
MESSAGES = 100
SENDER = "0123456789abcdef"
QUESTION = {
    "state": "held-x",
    "principal": ["ann", ["red"]],
    "request": ["a", ["tools/call", "x"]],
    "answers": {"x": {}},
}
NOTICES = [{"kind": "lists", "server": "a"}, {"kind": "updated", "server": "a", "uri": "note:///a"}, {"kind": "files"}]
GOOD: list[dict[str, Any]] = [
    {"from": SENDER, "ask": 1, "question": QUESTION},
    {"from": SENDER, "part": 1, "of": {"method": "notifications/message", "params": {}}},
    {"from": SENDER, "reply": 1, "answer": {"result": {}}},
    {"from": SENDER, "cancel": 1},
    {"from": SENDER, "notices": NOTICES, "missed": False},
]
KEYS = "fastmcp-aggregator:*"


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[ServerProcess, int, Any]]:
    """A hub with a limit that counts in Redis, and a client of that Redis."""
    server = RedisServer(folder)
    await server.start()
    client = redis.asyncio.from_url(server.url)
    document, port = folder / "mcp.json", free_port()
    document.write_text(json.dumps(config(a=lean())))
    command = [sys.executable, "-m", "fastmcp_aggregator", str(document), "--transport", "http", "--port", str(port)]
    settings = {"REDIS_URL": server.url, "RATE_LIMIT": "1000000", "RATE_BURST": "100000"}
    env = {**ENVIRONMENT, **{f"FASTMCP_AGGREGATOR_{name}": value for name, value in settings.items()}}
    try:
        async with running(*command, handshake=False, env=env) as hub:
            await hub.said("/mcp")
            yield hub, port, client
    finally:
        await client.aclose()
        server.stop()


def messages(draw: Draw) -> Iterator[bytes]:
    garbage = Garbage(draw.random, GOOD)
    for _ in range(MESSAGES):
        kind = garbage.random.random()
        if kind < 0.6:
            yield garbage.mutated(garbage.random.choice(GOOD))
        else:
            yield garbage.damaged_message() if kind < 0.8 else garbage.line()


async def send_batch(client: Any, port: int, draw: Draw) -> None:
    random = draw.random
    channels = [channel async for channel in _channels(client)]
    async with client.pipeline(transaction=False) as pipe:
        for data in messages(draw):
            pipe.publish(random.choice(channels), data)
        for key in [key async for key in client.scan_iter(KEYS) if b"calls" in key]:
            pipe.delete(key)
            odd = Garbage(random, []).odd_value().encode("utf-8", "surrogatepass")
            if random.random() < 0.5:
                pipe.set(key, odd)
            else:
                pipe.hset(key, mapping={"tokens": odd, "at": odd})
        await pipe.execute()
    await call(port, str(draw.number))


async def _channels(client: Any) -> AsyncIterator[bytes]:
    for channel in await client.pubsub_channels(KEYS):
        yield channel


async def test_whatever_comes_from_redis_calls_are_answered_and_the_program_does_not_grow(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, port, client):
        for draw in draws("early redis", 1):
            await send_batch(client, port, draw)
        watch = Watch("Redis", server.process.pid)
        for draw in draws("redis", BATCHES):
            await send_batch(client, port, draw)
        report = watch.report(BATCHES * SCALE * MESSAGES)
        with suppress(TimeoutError):
            await until(lambda: not watch.has_grown)
        assert not watch.has_grown, report
        server.process.terminate()
        assert await server.wait() == 0
    assert complaints(server.stderr) == []
