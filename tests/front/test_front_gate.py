"""How many HTTP requests are let through, as seen by an ASGI server."""

import asyncio
from typing import Any

import pytest
from fastmcp.utilities.tests import run_server_async
from support.harness import PATIENCE, config, lean, until
from support.wire import until_answered

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.concurrency.limiter import released_while_waiting
from fastmcp_aggregator.front.http.gate import Gate, GateLimits


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


class Patient(Inner):
    """An app whose PUT requests wait for something else first."""

    def __init__(self) -> None:
        super().__init__()
        self.aside = 0
        self.back = asyncio.Event()
        self.outliving: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "PUT":
            await self.wait()
        if scope["method"] == "PATCH":
            self.outliving.add(asyncio.create_task(self.wait()))
            await until(lambda: self.aside)
        await super().__call__(scope, receive, send)

    async def wait(self) -> None:
        with released_while_waiting.get()():
            self.aside += 1
            await self.back.wait()


class Caller:
    """Sends requests to a gate, each with a body in two parts, and then stays."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.bodies = 0
        """Bodies of which something was read."""
        self.second_part = asyncio.Event()
        """Set when the second part of the bodies is there."""
        self.second_part.set()

    def send(self, *, size: int = 10, method: str = "POST", headers: Any = (), user: Any = None) -> asyncio.Task[Any]:
        scope = {
            "type": "http",
            "method": method,
            "headers": [(b"content-length", str(size).encode()), *headers],
            "query_string": b"",
            **({"user": user} if user is not None else {}),
        }
        return asyncio.create_task(self._answer(scope))

    async def _answer(self, scope: Any) -> tuple[int, dict[bytes, bytes]]:
        got: list[Any] = []

        parts = iter(({"body": b"1", "more_body": True}, {"body": b"2"}))

        async def receive() -> Any:
            part = next(parts, None)
            if part is None:
                await asyncio.Event().wait()
            if "more_body" in part:
                self.bodies += 1
            else:
                await self.second_part.wait()
            return {"type": "http.request", **part}

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
    assert (inner.running, caller.bodies) == (2, 5), "the body of what is turned away is not read"
    inner.end.set()
    assert [status for status, _ in await asyncio.gather(*admitted)] == [200] * 5
    assert (await caller.send())[0] == 200


def patient(*, running: int) -> tuple[Patient, Caller]:
    inner = Patient()
    return inner, Caller(Gate(inner, GateLimits(running, 10, 1000, PATIENCE), has_auth=False))


async def runs_one_at_a_time(inner: Patient, caller: Caller) -> bool:
    """Whether the gate lets one request run and holds the next."""
    inner.end.clear()
    requests = [caller.send() for _ in range(2)]
    await until(lambda: inner.running)
    for _ in range(10):
        await asyncio.sleep(0)
    running = inner.running
    inner.end.set()
    await asyncio.gather(*requests)
    return running == 1


async def test_a_request_that_waits_for_a_server_lets_another_run_and_goes_on_when_it_is_its_turn() -> None:
    inner, caller = patient(running=1)
    waiting = caller.send(method="PUT")
    await until(lambda: inner.aside)
    others = [caller.send() for _ in range(2)]
    await until(lambda: inner.running)
    inner.back.set()
    await until(lambda: inner.running == 2)
    inner.end.set()
    assert [status for status, _ in await asyncio.gather(waiting, *others)] == [200] * 3
    assert await runs_one_at_a_time(inner, caller)


async def test_requests_that_wait_for_a_server_count_among_those_that_wait() -> None:
    inner, caller = patient(running=1)
    waiting = [caller.send(method="PUT") for _ in range(11)]
    await until(lambda: inner.aside == 11)
    assert (await caller.send())[0] == 503
    inner.back.set()
    inner.end.set()
    assert [status for status, _ in await asyncio.gather(*waiting)] == [200] * 11


async def test_a_request_that_is_given_up_while_it_waits_for_a_server_takes_no_turn_with_it() -> None:
    inner, caller = patient(running=1)
    waiting = caller.send(method="PUT")
    await until(lambda: inner.aside)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await runs_one_at_a_time(inner, caller)


async def test_what_goes_on_after_its_request_was_answered_takes_no_turn() -> None:
    inner, caller = patient(running=1)
    inner.end.set()
    assert (await caller.send(method="PATCH"))[0] == 200
    inner.back.set()
    await asyncio.gather(*inner.outliving)
    assert await runs_one_at_a_time(inner, caller)


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


async def test_a_request_takes_its_turn_when_its_body_has_come() -> None:
    inner, caller = gated(running=1)
    caller.second_part.clear()
    slow = caller.send()
    await until(lambda: caller.bodies == 1)
    caller.second_part, slow_part = asyncio.Event(), caller.second_part
    caller.second_part.set()
    quick = caller.send()
    await until(lambda: inner.running == 1)
    inner.end.set()
    assert (await quick)[0] == 200
    slow_part.set()
    assert (await slow)[0] == 200


async def test_a_body_that_does_not_come_is_given_up_and_takes_no_place_any_more() -> None:
    _, caller = gated(running=1, waiting=0, wait_bound=0.01)
    caller.second_part.clear()
    for _ in range(3):
        status, headers = await asyncio.wait_for(caller.send(), PATIENCE)
        assert (status, headers[b"connection"]) == (408, b"close")


LISTEN = (b"mcp-method", b"subscriptions/listen")


@pytest.mark.parametrize("headers", [[], [LISTEN, (b"mcp-protocol-version", b"2026-07-28")]])
async def test_streams_that_only_listen_are_not_counted(headers: Any) -> None:
    inner, caller = gated(running=1, waiting=0)
    streams = [caller.send(method="POST" if headers else "GET", headers=headers) for _ in range(5)]
    await until(lambda: inner.running == 5)
    counted = caller.send()
    await until(lambda: inner.running == 6)
    inner.end.set()
    assert {status for status, _ in await asyncio.gather(*streams, counted)} == {200}


@pytest.mark.parametrize("headers", [[LISTEN], [LISTEN, (b"mcp-protocol-version", b"2025-11-25")]])
async def test_a_legacy_request_that_says_it_listens_is_counted_because_nobody_checks_that(headers: Any) -> None:
    inner, caller = gated(running=1, waiting=0)
    first = caller.send()
    await until(lambda: inner.running == 1)
    assert (await caller.send(headers=headers))[0] == 503
    inner.end.set()
    assert (await first)[0] == 200


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
        answer = await until_answered(lambda: call(http, url, "a:echo"), lambda answer: answer.status_code != 503)
        assert answer.status_code == 200
