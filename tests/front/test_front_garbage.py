"""What requests leave behind is freed at once: a garbage collection, for which all wait, finds hardly anything."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from support.harness import config, lean

from fastmcp_aggregator import build_aggregator

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
        gc.unfreeze()


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
