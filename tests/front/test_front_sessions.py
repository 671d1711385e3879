"""Sessions of legacy clients over HTTP that are left without a goodbye: their time and their number are bounded.

The bounds are the SDK's, which FastMCP leaves as they are; what is documented of them is tested here.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from support.harness import PATIENCE, config, lean, until
from support.memory import build_aggregator
from support.serving import served
from support.wire_events import EventClient, event_client, hello

from fastmcp_aggregator import Aggregator


@asynccontextmanager
async def sessions(**options: Any) -> AsyncIterator[tuple[Aggregator, str, Any]]:
    """A served app, its URL, and the SDK's session manager in it."""
    app = build_aggregator(config(a=lean()))
    async with served(app, **options) as front:
        endpoint = next(route.endpoint for route in front.asgi.routes if route.path == "/mcp")
        yield app, front.url, endpoint.session_manager


async def status_of(client: EventClient) -> int:
    """The status of a call in this session."""
    async with client.call("a:echo") as response:
        return response.status


async def test_the_documented_bounds_hold() -> None:
    async with sessions() as (_, _, manager):
        assert (manager.session_idle_timeout, manager.max_sessions) == (30 * 60, 10_000)


async def test_a_session_ends_when_no_request_of_it_and_no_stream_was_open_for_a_while_and_leaves_nothing() -> None:
    async with (
        sessions() as (app, url, manager),
        event_client(url) as calling,
        event_client(url) as listening,
        calling.call("a:hold") as held,
        listening.listen(),
        event_client(url) as quiet,
    ):
        await until(lambda: app.health()["a"].in_flight == 1)
        assert len(app._live_clients.connections) == 3
        scopes = [transport.idle_scope for transport in manager._server_instances.values()]
        (running_out,) = await until(lambda: [scope for scope in scopes if scope.deadline < math.inf])
        running_out.deadline -= manager.session_idle_timeout  # as if the while had passed
        await until(lambda: len(app._live_clients.connections) == 2)
        assert await status_of(quiet) == 404
        assert await status_of(listening) == 200
        async with calling.call("a:release") as response:
            assert response.status == 200
        assert [event.says for event in await held.rest()] == [None, "result"]


async def test_a_session_too_many_is_refused_until_another_has_ended() -> None:
    async with (
        sessions() as (_, url, manager),
        event_client(url) as client,
        httpx2.AsyncClient(timeout=PATIENCE) as http,
    ):
        manager.max_sessions = 1
        assert (await hello(http, url)).status_code == 503
        assert await status_of(client) == 200
        await client.end()
        assert (await hello(http, url)).status_code == 200


@pytest.mark.parametrize("version", ["2025-11-25", "2025-03-26"])
async def test_a_session_that_is_ended_is_gone(version: str) -> None:
    async with sessions() as (app, url, _), event_client(url, version=version) as client:
        assert len(app._live_clients.connections) == 1
        await client.end()
        await until(lambda: not app._live_clients.connections)
        assert await status_of(client) == 404
