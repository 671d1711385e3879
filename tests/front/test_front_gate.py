"""How many HTTP requests are let through, as seen by an ASGI server."""

import asyncio
import logging
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from fastmcp.server.auth import AccessToken
from support.harness import PATIENCE, config, lean, until
from support.memory import build_aggregator, scripted
from support.serving import served
from support.virtual_time import VirtualTimeLoop
from support.wire import until_answered

import fastmcp_aggregator
from fastmcp_aggregator.access.loopback import network_of
from fastmcp_aggregator.auth.claims import claim_of
from fastmcp_aggregator.concurrency.limiter import released_while_waiting
from fastmcp_aggregator.front.http import connection
from fastmcp_aggregator.front.http.endpoints import Endpoints, head_of
from fastmcp_aggregator.front.http.gate import CONNECTION, IS_ENDING, AdmissionQueue, Gate, GateLimits


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

    def send(
        self,
        content: bytes = b"12",
        *,
        method: str = "POST",
        path: str = "/mcp/tools/call",
        headers: Any = (),
        query: bytes = b"",
        user: Any = None,
        address: str = "127.0.0.1",
        ending: bool = False,
        connection: Any = None,
    ) -> asyncio.Task[Any]:
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": list(headers),
            "query_string": query,
            "client": (address, 1),
            IS_ENDING: ending,
            CONNECTION: connection,
            **({"user": user} if user is not None else {}),
        }
        return asyncio.create_task(self._answer(scope, content))

    async def _answer(self, scope: Any, content: bytes) -> tuple[int, dict[bytes, bytes]]:
        got: list[Any] = []

        parts = iter(({"body": content[:-1], "more_body": True}, {"body": content[-1:]}))

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


ENDPOINTS = Endpoints("/mcp", "/mcp/messages")
NETWORK = network_of("127.0.0.1")
INITIALIZE = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}'


def gated(
    *, running: int = 2, waiting: int = 3, body_bytes: int = 1000, wait_bound: float = PATIENCE, grace: float = PATIENCE
) -> Any:
    inner = Inner()
    limits = GateLimits(running, waiting, body_bytes, wait_bound=wait_bound, body_grace=grace)
    return inner, Caller(Gate(inner, limits, ENDPOINTS, has_auth=False))


def test_the_head_of_a_request_is_that_of_its_present_fields() -> None:
    scope: dict[str, Any] = {"headers": [(b"host", b"a"), (b"accept", b"1"), (b"accept", b"2")]}
    head = head_of(scope)
    assert (head.first, head.has_repeated) == ({b"host": b"a", b"accept": b"1"}, True)
    assert head_of({**scope, "path": "/"}) is head
    scope["headers"] = [*scope["headers"][:2], (b"authorization", b"Bearer x")]
    head = head_of(scope)
    assert (head.first[b"authorization"], head.has_repeated) == (b"Bearer x", False)


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


async def test_a_session_takes_one_message_after_the_other_and_others_do_not_wait_for_it() -> None:
    inner, caller = gated()
    message = b'{"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}'
    mine = [caller.send(message, path="/mcp", headers=[IN_SESSION]) for _ in range(3)]
    await until(lambda: caller.bodies == 3)
    other = caller.send(message, path="/mcp", headers=[(b"mcp-session-id", b"2")])
    await until(lambda: inner.running == 2)
    assert not any(sent.done() for sent in (*mine, other))
    inner.end.set()
    assert [status for status, _ in await asyncio.gather(*mine, other)] == [200] * 4


@pytest.mark.parametrize(("size", "expected"), [(64 * 1024, 200), (64 * 1024 + 1, 413)])
async def test_what_opens_a_session_is_bounded(size: int, expected: int) -> None:
    inner, caller = gated(body_bytes=1024**2)
    inner.end.set()
    assert (await caller.send(INITIALIZE.ljust(size), path="/mcp"))[0] == expected


def test_who_goes_on_after_refusals_begins_in_turns_and_others_at_once() -> None:
    async def flood() -> None:
        inner = Inner()
        inner.end.set()
        gate = Gate(inner, GateLimits(2, 3, 1000), ENDPOINTS, has_auth=False)
        caller = Caller(gate)
        for _ in range(40):
            gate._admission.refused.refused(NETWORK)
        began = asyncio.get_running_loop().time()
        for _ in range(10):
            assert (await caller.send())[0] == 200
        took = asyncio.get_running_loop().time() - began
        assert 0.05 < took < 0.2
        assert (await caller.send(address="198.51.100.1"))[0] == 200
        assert asyncio.get_running_loop().time() - began == took

    in_virtual_time(flood())


@pytest.mark.parametrize("what", ["admitted", "sessions", "streams"])
def test_what_there_is_no_slot_for_is_refused_in_turns(what: str) -> None:
    async def flood() -> None:
        inner = Inner()
        gate = Gate(inner, GateLimits(1, 0, 1000, sessions=1), ENDPOINTS, has_auth=False)
        caller = Caller(gate)
        body = {"admitted": b"12", "sessions": INITIALIZE, "streams": LISTENING}[what]
        headers = [LISTEN, MODERN] if what == "streams" else []
        while getattr(gate._admission, what).try_acquire(NETWORK):
            pass
        for _ in range(40):
            assert (await caller.send(body, path="/mcp", headers=headers))[0] == 503
        assert 0.1 < asyncio.get_running_loop().time() < 0.5

    in_virtual_time(flood())


def in_virtual_time(work: Coroutine[Any, Any, None]) -> None:
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def patient(*, running: int) -> tuple[Patient, Caller]:
    inner = Patient()
    return inner, Caller(Gate(inner, GateLimits(running, 10, 1000, wait_bound=PATIENCE), ENDPOINTS, has_auth=False))


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
    first = caller.send(b"1" * 900)
    await until(lambda: inner.running == 1)
    assert (await caller.send(b"1" * 200))[0] == 503
    second = caller.send(b"1" * 100)
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


async def test_bodies_are_counted_as_they_come_not_as_they_are_announced() -> None:
    inner, caller = gated(waiting=30)
    caller.second_part.clear()
    announced = [(b"content-length", b"900")]
    slow = [caller.send(headers=announced) for _ in range(20)]
    await until(lambda: caller.bodies == 20)
    caller.second_part, slow_part = asyncio.Event(), caller.second_part
    caller.second_part.set()
    quick = caller.send(b"1" * 900)
    await until(lambda: inner.running == 1)
    inner.end.set()
    assert (await quick)[0] == 200
    slow_part.set()
    assert {status for status, _ in await asyncio.gather(*slow)} == {200}


async def test_body_that_stalls_is_given_up_before_the_longest_time_that_one_may_take() -> None:
    _, caller = gated(running=1, waiting=0, grace=0.01)
    caller.second_part.clear()
    assert (await asyncio.wait_for(caller.send(b"1" * 100), PATIENCE / 2))[0] == 408


async def test_body_may_take_longer_the_more_of_it_has_come() -> None:
    now = 1000.0

    class Clock:
        def time(self) -> float:
            return now

    times: list[float] = []

    class Deadline:
        async def __aenter__(self) -> Any:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        def reschedule(self, when: float) -> None:
            times.append(when - now)

    parts = iter([(b"x" * 65536, True), (b"x" * 65536, True), (b"x" * 4_000_000, True), (b"x", False)])

    async def receive() -> Any:
        body, more = next(parts)
        return {"type": "http.request", "body": body, "more_body": more}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.asyncio, "timeout", lambda _: Deadline())
        patch.setattr(connection.asyncio, "get_running_loop", Clock)
        await connection.Body(receive, lambda _: True).read(bound=60, grace=10)
    assert times == [14, 18, 60]


LISTEN = (b"mcp-method", b"subscriptions/listen")
MODERN = (b"mcp-protocol-version", b"2026-07-28")
LISTENING = b'{"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {}}'
CALLING = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "subscriptions/listen"}}'
IN_SESSION = (b"mcp-session-id", b"1")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_streams_that_only_listen_are_not_counted(method: str) -> None:
    inner, caller = gated(running=1, waiting=0, body_bytes=100)
    streams = []
    for number in range(5):
        streams.append(caller.send(LISTENING, method=method, path="/mcp", headers=[LISTEN, MODERN]))
        await until(lambda number=number: inner.running == number + 1)  # type: ignore[misc]
    counted = caller.send()
    await until(lambda: inner.running == 6)
    inner.end.set()
    assert {status for status, _ in await asyncio.gather(*streams, counted)} == {200}


@pytest.mark.parametrize(
    "request_",
    [
        {"path": "/mcp/tools/call", "headers": [LISTEN, MODERN], "content": LISTENING},
        {"path": "/mcp", "headers": [LISTEN, MODERN], "content": CALLING},
        {"path": "/mcp", "headers": [(b"mcp-method", b"tools/call"), LISTEN, MODERN], "content": LISTENING},
        {"path": "/mcp", "headers": [LISTEN, MODERN], "content": b"[" * 100_000},
        {"path": "/mcp", "headers": [LISTEN], "content": LISTENING},
        {"path": "/mcp", "headers": [LISTEN, (b"mcp-protocol-version", b"2025-11-25")], "content": LISTENING},
        {"path": "/mcp/tools/call", "query": b"session_id=1", "content": b'{"name": "a:echo"}'},
        {"path": "/mcp/tools/call", "headers": [IN_SESSION], "content": b'{"name": "a:echo"}'},
        {"path": "/mcp", "query": b"session_id=1", "content": b'{"name": "a:echo"}'},
        {"path": "/mcp", "headers": [IN_SESSION, MODERN], "content": CALLING.decode().encode("utf-16")},
        {"path": "/mcp", "headers": [IN_SESSION, MODERN], "content": CALLING.decode().encode("utf-32-be")},
    ],
)
@pytest.mark.parametrize("ending", [False, True])
async def test_request_is_told_by_its_route_and_its_content(request_: Any, ending: bool) -> None:
    inner, caller = gated(running=1, waiting=0, body_bytes=200_000)
    first = caller.send()
    await until(lambda: inner.running == 1)
    other = {"address": "127.0.0.2"} if ending else {}
    assert (await asyncio.wait_for(caller.send(**request_, **other, ending=ending), PATIENCE))[0] == 503
    inner.end.set()
    assert (await first)[0] == 200


@pytest.mark.parametrize("request_", [{"path": "/mcp", "headers": [IN_SESSION]}, {"path": "/mcp/messages"}])
@pytest.mark.parametrize("ending", [False, True])
async def test_answers_of_clients_need_no_turn_and_come_through_while_the_server_ends(
    request_: Any, ending: bool
) -> None:
    inner, caller = gated(running=1, waiting=1)
    first = caller.send()
    await until(lambda: inner.running == 1)
    answer = caller.send(b'{"jsonrpc": "2.0", "id": 1, "result": {}}', **request_, ending=ending)
    await until(lambda: inner.running == 2)
    inner.end.set()
    assert [(await first)[0], (await answer)[0]] == [200, 200]


async def test_body_of_a_get_is_dropped() -> None:
    got: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        got.extend([await receive(), await receive()])

    parts = iter([{"type": "http.request", "body": b"1" * 9, "more_body": True}] * 3 + [{"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(parts)

    scope = {"type": "http", "method": "GET", "path": "/mcp", "headers": [], "query_string": b""}
    await Gate(app, GateLimits(1, 1, 1), ENDPOINTS, has_auth=False)(scope, receive, receive)  # type: ignore[arg-type]
    assert [message.get("body") for message in got] == [b"", None]


async def test_caller_that_takes_all_that_there_is_keeps_nobody_else_out() -> None:
    inner, caller = gated(running=4, waiting=4, body_bytes=1000)
    ours = [caller.send(b"1" * 125) for _ in range(8)]
    await until(lambda: caller.bodies == 8)
    assert (await caller.send())[0] == 503
    assert (inner.running, caller.bodies) == (4, 8)
    theirs = caller.send(b"1" * 100, address="127.0.0.2")
    await until(lambda: inner.running == 5)
    inner.end.set()
    assert {status for status, _ in await asyncio.gather(*ours, theirs)} == {200}


async def test_of_who_sends_no_body_nothing_is_kept() -> None:
    inner, limits = Inner(), GateLimits(2, 3, 1000)
    admission = AdmissionQueue(limits)
    caller = Caller(Gate(inner, limits, ENDPOINTS, has_auth=False, admission=admission))
    inner.end.set()
    for last in range(5):
        assert (await caller.send(b"", method="DELETE", address=f"127.0.0.{last}"))[0] == 200
    assert {name: usage.holders for name, usage in admission.usage().items() if usage.holders} == {}


async def test_keys_of_one_principal_have_one_share() -> None:
    class User:
        is_authenticated = True

        def __init__(self, name: str, group: str) -> None:
            self.access_token = AccessToken(token="t", client_id="c", scopes=[], claims=claim_of(name, [group]))

    inner = Inner()
    caller = Caller(Gate(inner, GateLimits(1, 0, 1000), ENDPOINTS, has_auth=True))
    first = caller.send(user=User("ann", "a"))
    await until(lambda: inner.running == 1)
    assert (await caller.send(user=User("ann", "b"), address="127.0.0.2"))[0] == 503
    other = caller.send(user=User("bob", "a"))
    await until(lambda: inner.running == 2)
    inner.end.set()
    assert [(await first)[0], (await other)[0]] == [200, 200]


async def test_requests_that_authentication_has_not_let_in_take_no_place() -> None:
    class User:
        def __init__(self, is_authenticated: bool) -> None:
            self.is_authenticated = is_authenticated

    inner = Inner()
    caller = Caller(Gate(inner, GateLimits(1, 0, 1000), ENDPOINTS, has_auth=True))
    outside = [caller.send(user=User(False)) for _ in range(3)]
    await until(lambda: inner.running == 3)
    inside = caller.send(user=User(True))
    await until(lambda: inner.running == 4)
    assert (await caller.send(user=User(True)))[0] == 503
    inner.end.set()
    await asyncio.gather(*outside, inside)


async def test_the_answer_to_who_is_not_let_in_counts_for_the_address_of_a_connection_whoever_had_it_before() -> None:
    class User:
        def __init__(self, is_authenticated: bool) -> None:
            self.is_authenticated = is_authenticated
            self.access_token = AccessToken(token="t", client_id="c", scopes=[], claims=claim_of("ann", ["a"]))

    inner = Inner()
    inner.end.set()
    caller = Caller(Gate(inner, GateLimits(1, 0, 1000), ENDPOINTS, has_auth=True))
    connection = SimpleNamespace(is_lost=False, address="192.0.2.1", holder="192.0.2.1")
    await caller.send(user=User(True), connection=connection)
    assert connection.holder.name == "ann"
    await caller.send(user=User(False), connection=connection)
    assert connection.holder == "192.0.2.1"


async def call(http: Any, url: str, tool: str) -> Any:
    """A call of a modern client."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "_meta": meta}}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    return await http.post(url, json=body, headers=headers, timeout=PATIENCE)


async def test_the_limits_of_the_settings_hold_for_the_served_app() -> None:
    app = build_aggregator(config(a=lean()), max_concurrent_requests=1, max_waiting_requests=0)
    async with served(app) as front, front.browser() as http:
        held = asyncio.create_task(call(http, front.url, "a:hold"))
        await until(lambda: app.health()["a"].in_flight == 1)
        assert (await call(http, front.url, "a:echo")).status_code == 503
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        answer = await until_answered(lambda: call(http, front.url, "a:echo"), lambda answer: answer.status_code != 503)
        assert answer.status_code == 200


async def test_call_whose_client_has_left_before_its_turn_is_not_made() -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), max_concurrent_requests=1)
    child = scripted(app)["a"]
    admission = app._backend.admission
    async with served(app) as front, front.browser() as http:
        held = asyncio.create_task(call(http, front.url, "a:hold"))
        await until(lambda: admission.counts() == (1, 0))
        left = asyncio.create_task(call(http, front.url, "a:add_tool"))
        await until(lambda: admission.counts() == (1, 1))
        connections = admission.connections.taken
        left.cancel()
        await until(lambda: admission.connections.taken < connections)
        stays = asyncio.create_task(call(http, front.url, "a:echo"))
        held.cancel()
        assert (await stays).status_code == 200
    called = [message["params"]["name"] for message in child.life.received if message["method"] == "tools/call"]
    assert called == ["hold", "echo"]


async def test_requests_of_a_client_that_has_left_are_no_errors_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several on one connection, uvicorn tells the last alone that it is lost."""
    said: list[object] = []
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "error", lambda *text, **_: said.append(text))
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), max_concurrent_requests=1)
    admission = app._backend.admission
    async with served(app) as front, front.browser() as http:
        held = asyncio.create_task(call(http, front.url, "a:hold"))
        await until(lambda: admission.counts() == (1, 0))
        host, port = front.url.split("/")[2].split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        body = b'{"name":"a:echo"}'
        head = f"POST /mcp/tools/call HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        writer.write((head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body) * 3)
        await until(lambda: admission.counts() == (1, 1))
        connections = admission.connections.taken
        writer.transport.abort()
        await until(lambda: admission.connections.taken < connections)
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        await until(lambda: admission.counts() == (0, 0))
    assert said == []
