"""What a service serves over HTTP beside MCP: the JSON API, and SSE for older clients."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest
import uvicorn
from fastmcp import Client
from fastmcp.client.transports import SSETransport
from support.harness import PATIENCE, free_port

from fastmcp_aggregator.service import Service, ServiceSettings
from fastmcp_aggregator.service.errors import ConfigurationError
from fastmcp_aggregator.service.http import http_app
from fastmcp_aggregator.service.serving import http_config, serve, set_up_logging

SECRET = "0123456789abcdef"


def service(**settings: Any) -> Service:
    options = ServiceSettings(**{"transport": "http", "host": "127.0.0.1", "port": 8000, "api_key": SECRET, **settings})
    mcp = Service("words", settings=options, version="1.0.0")

    @mcp.tool
    def count_words(text: str) -> dict[str, int]:
        """Count the words of a text."""
        return {"words": len(text.split())}

    @mcp.resource("notes://{name}", name="note")
    def note(name: str) -> str:
        return f"About {name}."

    return mcp


@asynccontextmanager
async def client_of(server: Service) -> AsyncIterator[httpx.AsyncClient]:
    app = http_app(server)
    web = httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000", headers={"X-API-Key": SECRET}
    )
    async with app.router.lifespan_context(app), web as client:
        yield client


async def test_the_json_api_answers_with_results() -> None:
    async with client_of(service()) as client:
        tools = (await client.post("/mcp/tools/list")).json()["tools"]
        called = await client.post("/mcp/tools/call", json={"name": "count_words", "arguments": {"text": "a b"}})
        read = await client.post("/mcp/resources/read", json={"uri": "notes://a"})
    assert [tool["name"] for tool in tools] == ["count_words"]
    assert (called.status_code, called.json()["structuredContent"]) == (200, {"words": 2})
    assert read.json()["contents"][0]["text"] == "About a."


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "words"),
    [
        ("tools/forget", b"", "application/json", 404, "there is no method 'tools/forget'"),
        ("tools/call", b"{", "application/json", 400, "is not JSON"),
        ("tools/call", b"[" * 100_000, "application/json", 400, "is not JSON"),
        ("tools/call", b"[]", "application/json", 400, "params are an object"),
        ("tools/call", b'{"task": {}}', "application/json", 400, "params are an object"),
        ("tools/call", b"{}", "application/json", 400, "not the params of this method"),
        ("tools/call", b'{"name": "missing"}', "application/json", 400, "there is no tool 'missing'"),
        ("tools/list", b"{}", "text/plain", 415, "application/json"),
        ("tools/list", b" " * (4 * 1024 * 1024 + 1), "application/json", 413, "the body has more than"),
    ],
)
async def test_the_json_api_refuses_with_the_status_of_the_error(
    path: str, body: bytes, kind: str, status: int, words: str
) -> None:
    async with client_of(service()) as client:
        refused = await client.post(f"/mcp/{path}", content=body, headers={"Content-Type": kind})
    assert refused.status_code == status
    assert words in refused.json()["error"]["message"]


async def test_the_json_api_has_the_limits_and_the_authentication_of_the_rest() -> None:
    async with client_of(service(rate_limit_per_minute=1, rate_limit_burst=1)) as client:
        call = {"name": "count_words", "arguments": {"text": "a"}}
        assert (await client.post("/mcp/tools/call", json=call)).status_code == 200
        assert (await client.post("/mcp/tools/call", json=call)).status_code == 503
        assert (await client.post("/mcp/tools/call", json=call, headers={"X-API-Key": "wrong"})).status_code == 401


@pytest.mark.process
async def test_a_client_of_sse_is_served() -> None:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(http_app(service()), port=port, log_config=None))
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(PATIENCE):
        while not server.started:
            await asyncio.sleep(0.01)
        transport = SSETransport(f"http://127.0.0.1:{port}/mcp/sse", headers={"X-API-Key": SECRET})
        async with Client(transport, mode="legacy") as client:
            assert (await client.call_tool("count_words", {"text": "a b c"})).data == {"words": 3}
        server.should_exit = True
        await serving


@pytest.mark.process
async def test_the_body_of_a_request_that_asks_for_an_upgrade_is_no_other_request() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(http_config(service()))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with asyncio.timeout(PATIENCE):
        look = f"GET /health HTTP/1.1\r\nHost: {host}\r\n"
        fields = f"Content-Length: {len(look) + 2}\r\nConnection: Upgrade\r\nUpgrade: h2c"
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(f"POST /mcp/tools/list HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n\r\n".encode())
        other, its = await asyncio.open_connection(*listener.getsockname())  # what was sent before is read before
        its.write(f"{look}Connection: close\r\n\r\n".encode())
        assert b"ready" in await other.read()
        its.close()
        writer.write(f"{look}\r\n{look}Connection: close\r\n\r\n".encode())
        answers = await reader.read()
        writer.close()
        server.should_exit = True
        await serving
    assert (answers.count(b"HTTP/1.1 "), answers.count(b"ready")) == (2, 1)


async def until_ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                assert (await client.get("/health")).status_code == 200
            except httpx.ConnectError:
                await asyncio.sleep(0.01)
            else:
                return


@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGTERM on Windows")
async def test_a_call_in_flight_is_finished_when_a_signal_comes() -> None:
    port, begun, goes_on = free_port(), asyncio.Event(), asyncio.Event()
    server = service(port=port)

    @server.tool
    async def slow() -> str:
        """Say that it has begun, and wait."""
        begun.set()
        await goes_on.wait()
        return "done"

    serving = asyncio.create_task(serve(server))
    url, headers = f"http://127.0.0.1:{port}", {"X-API-Key": SECRET}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE, trust_env=False) as client:
        await until_ready(client)
        call = asyncio.create_task(client.post("/mcp/tools/call", json={"name": "slow"}))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while (refused := await client.post("/mcp/tools/call", json={"name": "count_words"})).status_code == 400:
                await asyncio.sleep(0.01)  # the signal has not come yet
        goes_on.set()
        assert (await call).json()["structuredContent"] == {"result": "done"}
    await asyncio.wait_for(serving, PATIENCE)
    assert refused.status_code == 503


async def test_a_port_that_is_taken_is_told() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigurationError, match=re.escape("cannot listen on 127.0.0.1")),
    ):
        await serve(service(port=taken.getsockname()[1]))


@pytest.mark.parametrize("profile", ["development", "production"])
def test_a_log_is_for_people_or_in_production_json(
    profile: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    set_up_logging(ServiceSettings(profile=profile, log_level="warning"))
    try:
        logging.getLogger("x").info("not told")
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("x").exception("what %s", "failed")
    finally:
        logging.root.setLevel(logging.WARNING)
    told = capsys.readouterr().err
    if profile == "development":
        assert told.startswith("ERROR x: what failed\nTraceback")
    else:
        entry = json.loads(told)
        assert (entry["level"], entry["logger"], entry["message"]) == ("error", "x", "what failed")
        assert entry["exception"].endswith("ValueError: no")
