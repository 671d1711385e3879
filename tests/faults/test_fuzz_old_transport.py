"""Clients of the old transport (HTTP with SSE) that post anything: good calls between are answered on the stream."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from fuzzing import SCALE, Draw, Watch, draws
from garbage import Garbage, client_messages
from support.harness import until
from support.processes import complaints
from support.wire_sse import SseClient
from test_fuzz_http import served

pytestmark = pytest.mark.fuzz

BATCHES = 2
POSTS = 50


async def send_batch(port: int, batch: Draw) -> None:
    client = SseClient(f"http://127.0.0.1:{port}/mcp/sse")
    garbage = Garbage(batch.random, client_messages(modern=False))
    try:
        await client.start()
        for number in range(POSTS):
            line = garbage.line()
            headers = {
                "Content-Type": garbage.random.choice(["application/json", "application/json", "text/plain", ""])
            }
            answer = await client.http.post(client.endpoint, content=line, headers=headers)
            assert answer.status_code < 500, f"{answer.status_code}: {batch} {number}: {line[:2000]!r}"
            if number % 10 == 0:
                called = await client.call("a:echo", nonce=number)
                assert called["arguments"] == {"nonce": number}, f"{batch} {number}"
    finally:
        await client.close()


async def test_good_calls_among_malformed_posts_are_answered_and_the_program_does_not_grow(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, port):
        for draw in draws("early SSE", 1):
            await send_batch(port, draw)
        watch = Watch("SSE", server.process.pid)
        for draw in draws("SSE", BATCHES):
            await asyncio.gather(*(send_batch(port, Draw(f"SSE {draw.number}", number)) for number in range(2)))
        report = watch.report(2 * BATCHES * SCALE * POSTS)
        with suppress(TimeoutError):
            await until(lambda: not watch.has_grown)
        assert not watch.has_grown, report
        server.process.terminate()
        assert await server.wait() == 0
    assert complaints(server.stderr) == []
