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
from support.harness import PATIENCE, config, lean, until
from support.memory import build_aggregator
from support.serving import Served, served

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.access.roles import ROLES
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
    ann, bob = new_key("ann", None, None), new_key("bob", None, None, ROLES)
    write_keys(folder / "keys.json", [ann[1], bob[1]])
    auth = auth_from_settings(load_settings(keys_file=str(folder / "keys.json")))
    app = build_aggregator(config(a=lean()), auth=auth, **{"max_concurrent_calls": 50, **options})
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
        await until(lambda: app._backend.admission.counts() == (0, 30))
        assert (await http.post("/mcp/tools/call", json=QUICK, headers=ann)).status_code == 503
        assert (await http.post("/mcp/tools/call", json=QUICK, headers=bob)).status_code == 200
        await until(lambda: app._backend.admission.counts() == (0, 30))
        for writer in writers:
            writer.close()
        await until(lambda: app._backend.admission.counts() == (0, 0))


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
            await until(lambda: app._backend.admission.counts() == (4, 4))
            assert (await call(QUICK, bob)).status_code == 200
            await until(lambda: app._backend.admission.counts() == (4, 4))


@pytest.mark.parametrize(("query", "headers"), LIES)
async def test_headers_and_queries_that_nobody_checks_bring_nothing_past_the_limits(
    tmp_path: Path, query: str, headers: dict[str, str]
) -> None:
    app, ann, _ = hub(tmp_path, max_concurrent_requests=1, max_waiting_requests=7)
    body = json.dumps({**LASTING, "arguments": {"x": "x" * 1000}}).encode()
    async with served(app) as front, front.browser() as http:
        path, sent = f"/mcp/tools/call{query}", {**ann, **headers, "Content-Type": "application/json"}
        async with begun(http.post(path, content=body, headers=sent) for _ in range(8)):
            await until(lambda: app._backend.admission.counts()[1] == 7 and app.health()["a"].in_flight)
            assert (app._backend.admission.counts(), app.health()["a"].in_flight) == ((1, 7), 1)


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


async def test_calls_that_hang_at_a_server_leave_turns_for_others(tmp_path: Path) -> None:
    app, ann, bob = hub(tmp_path, max_concurrent_requests=20, max_waiting_requests=40, max_concurrent_calls=10)
    async with served(app) as front, front.browser() as http:

        def call(tool: dict[str, str], headers: dict[str, str]) -> Any:
            return http.post("/mcp/tools/call", json=tool, headers=headers)

        async with begun(call(LASTING, ann) for _ in range(12)):
            await until(lambda: app.health()["a"].waiting == 4)
            assert app.health()["a"].in_flight == 8
            assert [(await call(QUICK, bob)).status_code for _ in range(5)] == [200] * 5
            told = (await http.get("/status", headers=bob)).json()
            assert told["servers"]["a"]["callers"] == 1
            about = {
                "limit": 75,
                "taken": 12,
                "callers": 1,
                "refused": 0,
                "largest": {"caller": "key:ann", "taken": 12},
            }
            assert told["shares"]["requests"] == about
            assert app.health()["a"].in_flight == 8


async def stream(front: Served, path: str, headers: dict[str, str]) -> tuple[bytes, asyncio.StreamWriter]:
    """The first line of the answer to a request for a stream, which stays open."""
    place = urlsplit(front.origin)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    lines = [f"GET {path} HTTP/1.1", f"Host: {place.netloc}", "Accept: text/event-stream"]
    writer.write("\r\n".join([*lines, *(f"{k}: {v}" for k, v in headers.items()), "", ""]).encode())
    return await asyncio.wait_for(reader.readline(), PATIENCE), writer


async def test_streams_of_one_caller_leave_room_for_those_of_others(tmp_path: Path) -> None:
    app, ann, bob = hub(tmp_path, max_sessions=4)
    async with served(app) as front, front.browser() as http:
        opened = [await stream(front, "/mcp/sse", ann) for _ in range(5)]
        assert [status[9:12] for status, _ in opened] == [b"200"] * 4 + [b"503"]
        of_bob = await stream(front, "/mcp/sse", bob)
        assert of_bob[0][9:12] == b"200"
        assert (await http.post("/mcp/tools/call", json=QUICK, headers=ann)).status_code == 200
        for _, writer in (*opened, of_bob):
            writer.close()
        await until(lambda: app._backend.admission.streams.taken == 0)
        assert (await stream(front, "/mcp/sse", ann))[0][9:12] == b"200"


async def test_listening_clients_of_the_newer_era_take_slots_of_streams(tmp_path: Path) -> None:
    app, ann, bob = hub(tmp_path, max_sessions=1)
    version = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    listen = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": meta},
    }
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}
    headers["Mcp-Method"] = "subscriptions/listen"
    async with served(app) as front, front.browser() as http:

        def listening(of: dict[str, str]) -> Any:
            return http.stream("POST", "/mcp", json=listen, headers={**headers, **of})

        async with listening(ann) as first, listening(ann) as second, listening(bob) as third:
            assert [first.status_code, second.status_code, third.status_code] == [200, 503, 200]
            assert app._backend.admission.counts() == (0, 0)
        await until(lambda: app._backend.admission.streams.taken == 0)


async def test_sessions_of_one_caller_leave_room_for_those_of_others(tmp_path: Path) -> None:
    app, ann, bob = hub(tmp_path, max_sessions=8)
    async with served(app) as front, front.browser() as http:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        headers = {"Accept": "application/json, text/event-stream"}

        def initialize(of: dict[str, str], message: Any = hello) -> Any:
            return http.post("/mcp", json=message, headers={**headers, **of})

        opened = [await initialize(ann) for _ in range(9)]
        assert [answer.status_code for answer in opened] == [200] * 8 + [503]
        assert "retry-after" in opened[-1].headers
        assert (await initialize(bob)).status_code == 200
        assert app._backend.admission.sessions.taken == 9
        for answer in opened[:2]:
            ended = await http.delete("/mcp", headers={**ann, "Mcp-Session-Id": answer.headers["mcp-session-id"]})
            assert ended.status_code == 200
        await until(lambda: app._backend.admission.sessions.taken == 7)
        assert (await initialize(ann, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).status_code == 400
        await until(lambda: app._backend.admission.sessions.taken == 7)
        assert (await initialize(ann)).status_code == 200


OTHER_PORT, PLAIN = "http://127.0.0.1:1", "text/plain"
PAGES: list[dict[str, str]] = [
    {"Origin": OTHER_PORT, "Content-Type": "application/json"},
    {"Origin": OTHER_PORT, "Content-Type": PLAIN},
    {"Origin": "http://localhost:1", "Content-Type": PLAIN},
    {"Origin": "http://localhost", "Content-Type": PLAIN},
    {"Origin": "https://127.0.0.1", "Content-Type": PLAIN},
    {"Origin": "http://[::1]:1", "Content-Type": PLAIN},
    {"Origin": "null", "Content-Type": PLAIN},
    {"Origin": "", "Content-Type": PLAIN},
    {"Origin": "http://127.0.0.1:99999", "Content-Type": PLAIN},
]
ADDRESSES = ["/mcp", "/mcp/tools/call", "/mcp/messages", "/status", "/groups/default/mcp/tools/call"]


@pytest.mark.parametrize("headers", PAGES)
async def test_pages_of_other_ports_are_turned_away(headers: dict[str, str]) -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front, front.browser() as http:
        for address in ADDRESSES:
            answer = await http.post(address, json=QUICK, headers=headers)
            expected = 403 if headers["Origin"] else 415
            assert answer.status_code == expected or (not headers["Origin"] and answer.status_code >= 400), address
        own = {"Origin": front.origin}
        assert (await http.post("/mcp/tools/call", json=QUICK, headers=own)).status_code == 200


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("kind", [PLAIN, "application/x-www-form-urlencoded", "", "text/plain; application/json"])
async def test_a_body_that_does_not_say_that_it_is_json_is_none(kind: str, fast_path: bool) -> None:
    app = build_aggregator(config(a=lean()), fast_path=fast_path)
    async with served(app) as front, front.browser() as http:
        headers = {"Content-Type": kind} if kind else {}
        answer = await http.post("/mcp/tools/call", content=json.dumps(QUICK).encode(), headers=headers)
        assert answer.status_code == 415
        assert answer.json()["error"]["code"] == -32600
        good = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert (await http.post("/mcp/tools/call", content=json.dumps(QUICK).encode(), headers=good)).status_code == 200
        assert (await http.post("/mcp/tools/list", headers=headers)).status_code == 200
