"""Connections over a real socket: those that nobody uses, those of who has too many, and what proxies say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from support.credentials import Credentials
from support.harness import PATIENCE, config, lean, until
from support.memory import build_aggregator
from support.serving import Served, served

from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.front.http.gate import CONNECTION
from fastmcp_aggregator.front.http.server import HttpTimings, serve_http
from fastmcp_aggregator.settings.model import load_settings

HALF_A_HEAD = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "
IMPATIENT = HttpTimings(head_bound=0.5, sweep_interval=0.01)
GOT_LARGE = 8 * 1024**2


async def connect(front: Served, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(front.origin.rpartition(":")[2]), local_addr=(address, 0))


async def health(front: Served, address: str = "127.0.0.1") -> bytes:
    """The first line of the answer on a new connection; empty where there is none."""
    reader, writer = await connect(front, address)
    try:
        writer.write(f"GET /health HTTP/1.1\r\nHost: {front.origin[7:]}\r\nConnection: close\r\n\r\n".encode())
        return await asyncio.wait_for(reader.readline(), PATIENCE)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_connection_without_another_request_is_closed() -> None:
    async with served(build_aggregator(config()), timings=IMPATIENT) as front:
        reader, writer = await connect(front)
        for _ in range(2):
            writer.write(f"GET /health HTTP/1.1\r\nHost: {front.origin[7:]}\r\n\r\n".encode())
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            assert head.startswith(b"HTTP/1.1 200 ")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
        await asyncio.wait_for(reader.read(), PATIENCE)  # up to the end
        writer.close()


async def test_a_head_that_is_not_ended_ends_its_connection_and_no_other() -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app, timings=IMPATIENT) as front, front.browser() as http:
        holding = asyncio.create_task(http.post("/mcp/tools/call", json={"name": "a:hold"}))
        await until(lambda: app.health()["a"].in_flight)
        silent = [await connect(front), await connect(front)]
        silent[1][1].write(HALF_A_HEAD)
        for reader, writer in silent:
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            writer.close()
        await http.post("/mcp/tools/call", json={"name": "a:release"})
        assert (await holding).status_code == 200
    assert app._backend.admission.connections.taken == 0


async def test_connections_without_a_request_make_room_for_others() -> None:
    app = build_aggregator(config(a=lean()))
    app._backend.admission.connections.total = 20
    async with served(app) as front:
        idle = [await connect(front) for _ in range(30)]
        for _, writer in idle:
            writer.write(HALF_A_HEAD)
        await until(lambda: app._backend.admission.connections.taken == 16)
        for address in ("127.0.0.1", "127.0.0.2"):
            assert await health(front, address) == b"HTTP/1.1 200 OK\r\n"
        for _, writer in idle:
            writer.close()


async def test_connections_with_requests_leave_room_for_other_addresses() -> None:
    app = build_aggregator(config(a=lean()))
    app._backend.admission.connections.total = 10
    async with served(app) as front:
        opened = [await connect(front) for _ in range(8)]
        for _, writer in opened:
            writer.write(b"POST /mcp/tools/call HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n")
        await until(lambda: app._backend.admission.counts() == (0, 8))
        assert await health(front) == b"HTTP/1.1 503 Service Unavailable\r\n"
        assert await health(front, "127.0.0.2") == b"HTTP/1.1 200 OK\r\n"
        for _, writer in opened:
            writer.close()
        await until(lambda: app._backend.admission.connections.taken == 0)
    assert app._backend.admission.connections.refused == 1


def unknown(count: int) -> bytes:
    """Requests of nobody, for what is not there."""
    return b"GET /unknown HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * count


async def test_connections_whose_requests_wait_to_be_refused_make_room_for_others(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, {"ann": None})
    app = build_aggregator(config(a=lean()), auth=credentials.auth)
    app._backend.admission.connections.total = 10
    async with served(app) as front, front.browser() as http:
        flooding = [await connect(front) for _ in range(8)]
        for _, writer in flooding:
            writer.write(unknown(12))
        await until(lambda: any(each.until for each in app._backend.admission.refused.lately.values()))
        for _ in range(10):
            closing = {"connection": "close", **credentials.of("ann")}
            answer = await http.post("/mcp/tools/call", json={"name": "a:echo"}, headers=closing)
            assert answer.status_code == 200
        for _, writer in flooding:
            writer.close()
        await until(lambda: app._backend.admission.connections.taken == 0)
    assert app._backend.admission.connections.refused == 0
    assert not any(each._waiting for each in app._backend.admission.refused.lately.values())


async def test_a_connection_whose_next_request_is_served_is_kept(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, {"ann": None})
    app = build_aggregator(config(a=lean()), auth=credentials.auth)
    app._backend.admission.connections.total = 10
    key = credentials.of("ann")["authorization"]
    async with served(app) as front, front.browser() as http:
        flooding = [await connect(front) for _ in range(2)]
        for _, other in flooding:
            other.write(unknown(15))
        reader, writer = await connect(front)
        head = f"POST /mcp/tools/call HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {key}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 18\r\n\r\n"
        writer.write(unknown(12) + head.encode() + b'{"name": "a:hold"}')
        await until(lambda: app.health()["a"].in_flight)
        idle = [await connect(front) for _ in range(20)]
        await until(lambda: app._backend.admission.connections.taken == 8)
        await http.post("/mcp/tools/call", json={"name": "a:release"}, headers=credentials.of("ann"))
        async with asyncio.timeout(PATIENCE):
            for _ in range(12):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 404 ")
                await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            assert (await reader.readline()) == b"HTTP/1.1 200 OK\r\n"
        for each in (writer, *(other for _, other in (*idle, *flooding))):
            each.close()


async def test_answers_that_are_not_read_end_their_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    app = build_aggregator(
        config(a=lean(results={"tools/call": {"content": [{"type": "text", "text": "x" * GOT_LARGE}]}}))
    )
    app._backend.admission.unread.total = 3 * GOT_LARGE
    async with served(app) as front, front.browser() as http:
        deaf = []
        for _ in range(6):
            reader, writer = await connect(front)
            writer.transport.pause_reading()
            writer.write(
                b"POST /mcp/tools/call HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b'Content-Length: 17\r\n\r\n{"name": "a:big"}'
            )
            deaf.append((reader, writer))
        await until(lambda: app._backend.admission.unread.refused >= 2)
        assert app._backend.admission.unread.taken <= 3 * GOT_LARGE
        assert len((await http.post("/mcp/tools/call", json={"name": "a:big"})).content) > GOT_LARGE
        for _, writer in deaf:
            writer.close()
    assert app._backend.admission.unread.taken == 0


async def test_a_request_whose_client_has_left_finds_that_out_and_waits_for_no_turn() -> None:
    begun, found = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        turn = asyncio.get_running_loop().create_future()
        scope[CONNECTION].give_way(turn)
        found.set_result((scope[CONNECTION].is_lost, turn.done()))

    stop, listening = asyncio.Event(), asyncio.Event()
    with listening_socket("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(serve_http(app, listener, stop, on_listening=listening.set))
        await asyncio.wait_for(listening.wait(), PATIENCE)
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(unknown(1))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        writer.close()
        assert await asyncio.wait_for(found, PATIENCE) == (True, True)
        stop.set()
        await serving


@asynccontextmanager
async def echoing(*proxies: str) -> AsyncIterator[Served]:
    """A server that tells of each request from where it has come."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        request = Request(scope)
        await JSONResponse([request.client.host if request.client else None, request.url.scheme])(scope, receive, send)

    stop, listening = asyncio.Event(), asyncio.Event()
    with listening_socket("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(serve_http(app, listener, stop, on_listening=listening.set, proxies=proxies))
        await asyncio.wait_for(listening.wait(), PATIENCE)
        yield Served(app, url_of(listener, "127.0.0.1"), stop, None, None)  # type: ignore[arg-type]
        stop.set()
        await serving


@pytest.mark.parametrize(
    ("proxies", "forwarded", "seen"),
    [
        ((), "192.0.2.7", ["127.0.0.1", "http"]),
        (("192.0.2.1",), "192.0.2.7", ["127.0.0.1", "http"]),
        (("127.0.0.1",), "192.0.2.7", ["192.0.2.7", "https"]),
        (("127.0.0.0/8",), "192.0.2.66, 192.0.2.7, 127.0.0.9", ["192.0.2.7", "https"]),
    ],
)
async def test_what_a_proxy_says_is_believed_if_it_is_named(
    proxies: tuple[str, ...], forwarded: str, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    async with echoing(*proxies) as front, front.browser() as http:
        answer = await http.get("/", headers={"X-Forwarded-For": forwarded, "X-Forwarded-Proto": "https"})
        assert answer.json() == seen


def test_a_proxy_is_named_by_its_address() -> None:
    assert load_settings(trusted_proxies=["10.0.0.0/8", "::1"]).trusted_proxies == ("10.0.0.0/8", "::1")
    with pytest.raises(ConfigError, match=r"must be an address, or a network such as 10\.0\.0\.0/8"):
        load_settings(trusted_proxies=["*"])
