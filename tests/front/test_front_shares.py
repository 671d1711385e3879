"""What one caller does to the others over a real socket: bodies that do not come, calls that last, headers that lie."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from support.harness import config, lean, until
from support.memory import build_aggregator
from support.serving import served

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.auth.verifiers import auth_from_settings
from fastmcp_aggregator.settings.model import load_settings

QUICK, LASTING = {"name": "a:echo"}, {"name": "a:hold"}
LIES = [
    ("?session_id=x", {}),
    ("", {"Mcp-Session-Id": "x"}),
    ("", {"Mcp-Method": "subscriptions/listen", "MCP-Protocol-Version": "2026-07-28"}),
]


def hub(folder: Path, **options: Any) -> tuple[Aggregator, dict[str, str], dict[str, str]]:
    """A hub, and the headers of two of its callers."""
    ann, bob = new_key("ann", None, None), new_key("bob", None, None)
    write_keys(folder / "keys.json", [ann[1], bob[1]])
    auth = auth_from_settings(load_settings(keys_file=str(folder / "keys.json")))
    app = build_aggregator(config(a=lean()), auth=auth, max_concurrent_calls=50, **options)
    of_ann, of_bob = ({"Authorization": f"Bearer {key}"} for key in (ann[0], bob[0]))
    return app, of_ann, of_bob


async def announce(origin: str, headers: dict[str, str]) -> asyncio.StreamWriter:
    """A connection on which a body of 4 MiB was announced, and nothing of it is sent."""
    place = urlsplit(origin)
    _, writer = await asyncio.open_connection(place.hostname, place.port)
    lines = ["POST /mcp/tools/call HTTP/1.1", f"Host: {place.netloc}", f"Content-Length: {4 * 1024**2}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()
    return writer


async def test_bodies_that_are_announced_and_not_sent_keep_nobody_else_out(tmp_path: Path) -> None:
    app, ann, bob = hub(tmp_path, max_concurrent_requests=2, max_waiting_requests=28, max_request_bodies_mb=8)
    async with served(app) as front, front.browser() as http:
        writers = [await announce(front.origin, ann) for _ in range(30)]
        await until(lambda: app._backend.places.counts() == (0, 30))
        assert (await http.post("/mcp/tools/call", json=QUICK, headers=ann)).status_code == 503
        assert (await http.post("/mcp/tools/call", json=QUICK, headers=bob)).status_code == 200
        await until(lambda: app._backend.places.counts() == (0, 30))
        for writer in writers:
            writer.close()
        await until(lambda: app._backend.places.counts() == (0, 0))


@asynccontextmanager
async def begun(requests: Iterable[Coroutine[Any, Any, httpx2.Response]]) -> AsyncIterator[None]:
    """While these requests are made; they are given up at the end."""
    tasks = [asyncio.create_task(request) for request in requests]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_calls_that_last_keep_nobody_else_waiting(tmp_path: Path) -> None:
    app, ann, bob = hub(tmp_path, max_concurrent_requests=4, max_waiting_requests=40)
    async with served(app) as front, front.browser() as http:

        def call(tool: dict[str, str], headers: dict[str, str]) -> Any:
            return http.post("/mcp/tools/call", json=tool, headers=headers)

        async with begun(call(LASTING, ann) for _ in range(8)):
            await until(lambda: app._backend.places.counts() == (4, 4))
            assert (await call(QUICK, bob)).status_code == 200
            await until(lambda: app._backend.places.counts() == (4, 4))


@pytest.mark.parametrize(("query", "headers"), LIES)
async def test_headers_and_queries_that_nobody_checks_bring_nothing_past_the_limits(
    tmp_path: Path, query: str, headers: dict[str, str]
) -> None:
    app, ann, _ = hub(tmp_path, max_concurrent_requests=1, max_waiting_requests=7)
    body = json.dumps({**LASTING, "arguments": {"x": "x" * 1000}}).encode()
    async with served(app) as front, front.browser() as http:
        path, sent = f"/mcp/tools/call{query}", {**ann, **headers, "Content-Type": "application/json"}
        async with begun(http.post(path, content=body, headers=sent) for _ in range(8)):
            await until(lambda: app._backend.places.counts()[1] == 7 and app.health()["a"].in_flight)
            assert (app._backend.places.counts(), app.health()["a"].in_flight) == ((1, 7), 1)


@pytest.mark.parametrize(("query", "headers"), LIES)
async def test_headers_and_queries_that_nobody_checks_bring_nothing_past_the_end(
    tmp_path: Path, query: str, headers: dict[str, str]
) -> None:
    app, ann, _ = hub(tmp_path)
    async with (
        served(app) as front,
        front.browser() as http,
        begun([http.post("/mcp/tools/call", json=LASTING, headers=ann)]),
    ):
        await until(lambda: app.health()["a"].in_flight)
        front.stop.set()
        while (await http.get("/ready")).status_code != 503:
            pass
        answer = await http.post(f"/mcp/tools/call{query}", json=QUICK, headers={**ann, **headers})
        assert (answer.status_code, answer.text) == (503, "server is shutting down")
