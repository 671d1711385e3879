"""What requests leave behind is freed at once: a garbage collection, for which all wait, finds hardly anything."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from support.harness import config, lean, until
from support.serving import served

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.front.http.client_connection import ClientConnection

REQUESTS = 10
ECHO = {"json": {"name": "a:echo"}}
UNKNOWN = {"json": {"name": "a:none"}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "a call": ({}, ECHO, 200),
    "a call on the full path": ({"fast_path": False}, ECHO, 200),
    "a call over the limit": ({"rate_limit": 1, "rate_burst": 1}, ECHO, 429),
    "an unknown tool": ({}, UNKNOWN, 400),
    "no JSON": ({}, {"content": b"{", "headers": {"content-type": "application/json"}}, 400),
}


@contextmanager
def garbage() -> Iterator[list[Any]]:
    """What is only found by a collection, of all that is made inside."""
    found: list[Any] = []
    gc.freeze()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(("settings", "request_", "status"), CASES.values(), ids=CASES)
async def test_requests_leave_no_garbage(settings: dict[str, Any], request_: dict[str, Any], status: int) -> None:
    app = build_aggregator(config(a=lean()), **settings).http_app()
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        for _ in range(3):
            await http.post("/mcp/tools/call", **request_)
        with garbage() as found:
            for _ in range(REQUESTS):
                assert (await http.post("/mcp/tools/call", **request_)).status_code == status
        assert [repr(one) for one in found if isinstance(one, BaseException)] == []
        assert len(found) < 3 * REQUESTS, sorted({type(one).__name__ for one in found})


@pytest.mark.parametrize("requests", [0, 1, 3])
async def test_a_connection_that_was_closed_leaves_no_garbage(requests: int) -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front:
        host, body = front.origin.removeprefix("http://"), json.dumps(ECHO["json"])
        head = f"POST /mcp/tools/call HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()

        async def visit() -> None:
            reader, writer = await asyncio.open_connection(*host.split(":"))
            for _ in range(requests):
                writer.write(request)
                assert await reader.readuntil(b"}}")
            writer.close()

        await visit()
        with garbage() as found:
            for _ in range(REQUESTS):
                await visit()
            await until(lambda: app._backend.admission.connections.taken == 0)
            await asyncio.sleep(0)
    assert [one for one in found if isinstance(one, ClientConnection)] == []
