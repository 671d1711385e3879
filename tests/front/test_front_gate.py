"""How many HTTP requests are let through, as seen by an ASGI server."""

import asyncio
from typing import Any

import pytest
from fastmcp.utilities.tests import run_server_async
from harness import PATIENCE, config, lean, until

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.front.gate import Gate, GateLimits


class Inner:
    """An app whose requests run until they are told to end."""

    def __init__(self) -> None:
        self.running = 0
        self.end = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.running += 1
        await self.end.wait()
        self.running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Caller:
    """Sends requests to a gate; their bodies must not be read by it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def send(self, *, size: int = 10, method: str = "POST", headers: Any = (), user: Any = None) -> asyncio.Task[Any]:
        scope = {
            "type": "http",
            "method": method,
            "headers": [(b"content-length", str(size).encode()), *headers],
            **({"user": user} if user is not None else {}),
        }
        return asyncio.create_task(self._answer(scope))

    async def _answer(self, scope: Any) -> tuple[int, dict[bytes, bytes]]:
        got: list[Any] = []

        async def receive() -> Any:
            pytest.fail("the body was read")

        async def send(message: Any) -> None:
            got.append(message)

        await self._gate(scope, receive, send)
        return got[0]["status"], dict(got[0]["headers"])


def gated(*, running: int = 2, waiting: int = 3, body_bytes: int = 1000, wait_bound: float = PATIENCE) -> Any:
    inner = Inner()
    gate = Gate(inner, GateLimits(running, waiting, body_bytes, wait_bound), has_auth=False)
    return inner, Caller(gate)


async def test_so_many_run_so_many_wait_and_the_next_is_turned_away_with_the_time_to_wait() -> None:
    inner, caller = gated()
    admitted = [caller.send() for _ in range(5)]
    await until(lambda: inner.running == 2)
    status, headers = await asyncio.wait_for(caller.send(), PATIENCE)
    assert (status, headers[b"retry-after"]) == (503, b"5")
    assert inner.running == 2
    inner.end.set()
    assert [status for status, _ in await asyncio.gather(*admitted)] == [200] * 5
    assert (await caller.send())[0] == 200


async def test_bodies_that_take_too_much_together_are_turned_away() -> None:
    inner, caller = gated()
    first = caller.send(size=900)
    await until(lambda: inner.running == 1)
    assert (await caller.send(size=200))[0] == 503
    second = caller.send(size=100)
    inner.end.set()
    assert [(await first)[0], (await second)[0]] == [200, 200]


async def test_a_request_that_waits_too_long_is_turned_away() -> None:
    inner, caller = gated(running=1, wait_bound=0.01)
    first = caller.send()
    await until(lambda: inner.running == 1)
    assert (await caller.send())[0] == 503
    inner.end.set()
    assert (await first)[0] == 200
    assert (await caller.send())[0] == 200


@pytest.mark.parametrize("headers", [[], [(b"mcp-method", b"subscriptions/listen")]])
async def test_streams_that_only_listen_are_not_counted(headers: Any) -> None:
    inner, caller = gated(running=1, waiting=0)
    streams = [caller.send(method="POST" if headers else "GET", headers=headers) for _ in range(5)]
    await until(lambda: inner.running == 5)
    counted = caller.send()
    await until(lambda: inner.running == 6)
    inner.end.set()
    assert {status for status, _ in await asyncio.gather(*streams, counted)} == {200}


async def test_requests_that_authentication_has_not_let_in_take_no_place() -> None:
    class User:
        def __init__(self, is_authenticated: bool) -> None:
            self.is_authenticated = is_authenticated

    inner = Inner()
    caller = Caller(Gate(inner, GateLimits(1, 0, 1000), has_auth=True))
    outside = [caller.send(user=User(False)) for _ in range(3)]
    await until(lambda: inner.running == 3)
    inside = caller.send(user=User(True))
    await until(lambda: inner.running == 4)
    assert (await caller.send(user=User(True)))[0] == 503
    inner.end.set()
    await asyncio.gather(*outside, inside)


async def test_the_limits_of_the_settings_hold_for_the_served_app() -> None:
    import httpx2

    app = build_aggregator(config(a=lean()), max_concurrent_requests=1, max_waiting_requests=0)
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}

    async def call(http: Any, url: str, tool: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "_meta": meta}}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }
        return await http.post(url, json=body, headers=headers, timeout=PATIENCE)

    async with run_server_async(app) as url, httpx2.AsyncClient() as http:
        held = asyncio.create_task(call(http, url, "a:hold"))
        await until(lambda: app.health()["a"].in_flight == 1)
        assert (await call(http, url, "a:echo")).status_code == 503
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        await until(lambda: app.health()["a"].in_flight == 0)
        assert (await call(http, url, "a:echo")).status_code == 200
