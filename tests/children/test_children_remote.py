"""Remote children against a server that misbehaves on demand: what a caller is told, and what is never let in."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import resource
import socket
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest
from support.harness import MODERN, PATIENCE, RawClient, config, connected, lean, timed, until
from support.remote_server import Misbehaviour, RemoteServer, Request, remote_server
from support.serving import served

from fastmcp_aggregator import Aggregator, StartupError, build_aggregator
from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.children.http.failures import of_status
from fastmcp_aggregator.children.session.parts import TOO_MANY_PARTS
from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS, Timings
from fastmcp_aggregator.protocol.parts import ANSWER_PARTS_LIMIT

SECRET = "pl4nted-s3cret"
LIMIT = 64 * 1024
LIMIT_MB = LIMIT / 1024**2
MIB = 1024**2
STOPPED = Timings(clock=lambda: 0.0)
"""A clock that stands still."""


def entry(server: RemoteServer, **extra: Any) -> dict[str, Any]:
    """A config entry with a secret in every place that can hold one."""
    url = server.url.replace("://", f"://user:{SECRET}@") + f"?token={SECRET}"
    return {"url": url, "headers": {"X-Api-Key": SECRET}, **extra}


@asynccontextmanager
async def serving(
    server: RemoteServer, misbehave: Misbehaviour | None = None, timings: Timings = DEFAULT_TIMINGS, **settings: Any
) -> AsyncIterator[tuple[Aggregator, RawClient]]:
    """An aggregator whose child `r` runs; from then on the server misbehaves."""
    settings = {"max_response_size_mb": LIMIT_MB, **settings}
    app = timed(build_aggregator(config(r=entry(server)), **settings), timings)
    async with app, connected(app) as client:
        server.misbehave = misbehave
        yield app, client


async def error_of(client: RawClient, name: str = "bad", method: str = "tools/call") -> dict[str, Any]:
    error = await client.error(method, {"name": f"r:{name}"})
    assert SECRET not in json.dumps(error)
    return error


async def failure_at_start(misbehave: Misbehaviour, **settings: Any) -> str:
    async with remote_server(misbehave) as server:
        with pytest.raises(StartupError) as caught:
            async with build_aggregator(config(r=entry(server)), **settings):
                pytest.fail("entered")
    assert SECRET not in str(caught.value)
    return str(caught.value)


def always(status: int, **headers: str) -> Misbehaviour:
    async def misbehave(request: Request) -> bool:
        await request.respond(status, **headers)
        return True

    return misbehave


def for_bad(status: int, body: bytes | str = b"", **headers: str) -> Misbehaviour:
    """This answer to calls of the tool `bad`, and no other."""

    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            await request.respond(status, body, **headers)
        return request.is_bad

    return misbehave


# What is not let in.


async def test_identity_encoding_is_asked_for() -> None:
    async with remote_server() as server, serving(server) as (_, client):
        await client.call("r:echo")
        assert {request.headers["accept-encoding"] for request in server.requests} == {"identity"}


@functools.cache
def gzip_bomb() -> bytes:
    """200 MiB, of which less than one is sent. It is made piece by piece: what it opens to was never in memory."""
    packer, piece = zlib.compressobj(wbits=31), bytes(MIB)
    bomb = b"".join([*(packer.compress(piece) for _ in range(200)), packer.flush()])
    assert len(bomb) < MIB
    return bomb


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_a_gzip_bomb_is_refused_unopened_and_the_server_goes_on(content_type: str) -> None:
    misbehave = for_bad(200, gzip_bomb(), content_type=content_type, content_encoding="gzip")
    async with remote_server() as server, serving(server, misbehave, max_response_size_mb=100) as (_, client):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        error = await error_of(client)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert (await client.call("r:echo"))["host"]
    assert "server 'r': its response is compressed (gzip)" in error["message"]
    assert grown * 1024 < 50 * MIB


async def endless(request: Request, prefix: bytes, piece: bytes) -> bool:
    """A body without an end; until the other side hangs up."""
    if not request.is_bad:
        return False
    is_stream = prefix.startswith(b"data")
    await request.start(200, content_type="text/event-stream" if is_stream else "application/json", connection="close")
    request.writer.write(prefix)
    while True:
        request.writer.write(piece)
        await request.writer.drain()


@pytest.mark.parametrize(
    ("prefix", "piece"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":"', b"x" * 65536),
        (b"data: ", b"x" * 65536),
        (b"data: ", b"x" * 65000 + b"\ndata: "),
        (b"data: ", b"\n: x" * 16384),
    ],
    ids=["json", "one line", "many lines", "comments"],
)
async def test_an_endless_response_fails_its_call_at_the_limit_and_no_other(prefix: bytes, piece: bytes) -> None:
    async def misbehave(request: Request) -> bool:
        return await endless(request, prefix, piece)

    async with remote_server() as server, serving(server, misbehave) as (app, client):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        error = await error_of(client)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert (await client.call("r:echo"))["host"]
        assert app.health()["r"].restarts == 0
    assert error["message"].startswith("server 'r': response too large: more than 65536 bytes")
    assert grown * 1024 < 20 * MIB


def after_hints(count: int) -> Misbehaviour:
    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            with suppress(ConnectionError):
                for _ in range(count):
                    request.writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                    await request.writer.drain()
                await request.answer({"content": []})
        return request.is_bad

    return misbehave


async def test_informational_responses_before_an_answer_are_read_up_to_a_limit() -> None:
    async with remote_server() as server:
        async with serving(server, after_hints(100)) as (_, client):
            assert (await client.result("tools/call", {"name": "r:bad"}))["content"] == []
        server.misbehave = None
        async with serving(server, after_hints(10_000)) as (_, client):
            error = await error_of(client)
            assert "the connection broke before it had answered" in error["message"]
            assert await client.call("r:echo")


async def test_a_response_up_to_the_limit_is_taken_whole_also_as_an_event() -> None:
    """The SDK by itself takes events of 1 MiB at most."""
    text = "x" * (3 * MIB)

    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            result = {"content": [{"type": "text", "text": text}]}
            reply = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": result})
            await request.respond(200, f"event: message\r\ndata: {reply}\r\n\r\n", content_type="text/event-stream")
        return request.is_bad

    async with remote_server() as server, serving(server, misbehave, max_response_size_mb=4) as (_, client):
        result = await client.result("tools/call", {"name": "r:bad"})
    assert result["content"][0]["text"] == text


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "[fd00:ec2::254]",
        "[::ffff:169.254.169.254]",
        "metadata.google.internal",
        "METADATA.google.internal.",
        "2852039166",  # resolves to 169.254.169.254
    ],
)
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_cloud_metadata_addresses_are_refused(host: str, transport: str) -> None:
    document = config(r={"url": f"http://{host}:9/mcp", "type": transport})
    with pytest.raises(StartupError, match="its address is that of a cloud metadata service"):
        async with build_aggregator(document):
            pytest.fail("entered")


async def test_a_name_that_resolves_to_a_metadata_address_only_when_it_is_connected_to_is_sent_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket.socket, "getpeername", lambda _: ("169.254.169.254", 80))
    async with remote_server() as server:
        document = config(r={"url": f"http://localhost:{server.port}/mcp"})
        with pytest.raises(StartupError, match="its address is that of a cloud metadata service"):
            async with build_aggregator(document):
                pytest.fail("entered")
        assert server.requests == []


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with remote_server() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with build_aggregator(config(r={"url": "http://far.invalid/mcp"})) as app, connected(app) as client:
            assert (await client.call("r:echo"))["host"] == "far.invalid"
        assert proxy.requests[-1].target == "http://far.invalid/mcp"


# What the caller is told.


async def test_a_server_error_is_told_with_its_status_and_ends_nothing_else() -> None:
    async with remote_server() as server, serving(server, for_bad(500)) as (app, client):
        assert (await error_of(client))["message"] == "server 'r': HTTP status 500"
        assert (await client.call("r:echo"))["host"]
        assert app.health()["r"].restarts == 0


async def test_a_modern_server_is_treated_like_a_legacy_one() -> None:
    async with remote_server() as server:
        server.is_modern = True
        async with serving(server, for_bad(500)) as (app, client):
            assert app.health()["r"].protocol_version == MODERN
            assert (await error_of(client))["message"] == "server 'r': HTTP status 500"
            assert (await client.call("r:echo"))["x-api-key"] == SECRET
            assert app.health()["r"].restarts == 0
            server.misbehave = always(401)
            assert "authentication failed (HTTP 401)" in (await error_of(client))["message"]
            await until(lambda: app.health()["r"].state == "failed")


async def test_each_of_several_concurrent_calls_is_told_of_its_own_failure() -> None:
    arrived: list[Request] = []

    async def misbehave(request: Request) -> bool:
        if request.method != "tools/call":
            return False
        arrived.append(request)
        await until(lambda: len(arrived) == 4)
        status = request.message["params"]["arguments"]["status"]
        await (request.respond(status) if status else request.answer({"content": []}))
        return True

    async with remote_server() as server, serving(server, misbehave) as (_, client):
        statuses = [500, 502, 429, 0]
        begun = [
            client.begin("tools/call", {"name": "r:echo", "arguments": {"status": status}})[1] for status in statuses
        ]
        responses = await asyncio.wait_for(asyncio.gather(*begun), PATIENCE)
    messages = [response.get("error", {}).get("message") for response in responses]
    assert messages == [
        "server 'r': HTTP status 500",
        "server 'r': HTTP status 502",
        "server 'r': HTTP status 429",
        None,
    ]


async def test_retry_after_is_passed_on() -> None:
    async with remote_server() as server, serving(server, for_bad(503, retry_after="7")) as (_, client):
        assert (await error_of(client))["data"]["retryIn"] == 7


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("12", 12),
        ("9" * 400, 300),
        ("-5", 0),
        ("soon", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2399 07:28:00 GMT", 300),
        ("Wed, 21 Oct 2399 07:28:00", 0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date_and_bounded(value: str, seconds: float) -> None:
    request = httpx2.Request("POST", "http://host/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    failure = of_status(request, httpx2.Response(503, headers={"Retry-After": value}), b"")
    assert failure is not None
    assert failure.pause == seconds


async def test_a_server_that_answers_every_request_with_503_is_down_for_as_long_as_it_says() -> None:
    async with remote_server() as server, serving(server, always(503, retry_after="120"), STOPPED) as (app, client):
        assert (await error_of(client))["message"] == "server 'r': HTTP status 503"
        await until(lambda: app.health()["r"].state == "failed")
        assert app.health()["r"].retry_in == 120
        assert "HTTP status 503), next try in" in (await error_of(client))["message"]


async def test_server_errors_in_a_row_open_the_breaker() -> None:
    async with remote_server() as server, serving(server, for_bad(429)) as (_, client):
        for _ in range(5):
            await error_of(client)
        error = await error_of(client)
        assert server.counts["tools/call"] == 5
    assert "it did not answer several times in a row" in error["message"]
    assert error["data"]["retryIn"] > 1


async def test_a_json_rpc_error_of_the_server_passes_unchanged_whatever_its_status() -> None:
    for status in (200, 400, 403, 404, 500):

        async def misbehave(request: Request, status: int = status) -> bool:
            if request.is_bad:
                await request.refuse(status, -32042, f"told with {status}")
            return request.is_bad

        async with remote_server() as server, serving(server, misbehave) as (_, client):
            error = await client.error("tools/call", {"name": "r:bad"})
            assert error == {"code": -32042, "message": f"told with {status}"}


async def test_an_error_of_the_server_cannot_pass_for_one_of_ours() -> None:
    data = {"mark": "guessed", "kind": "expired", "reason": "x", "pause": 0}

    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            error = {"code": -32603, "message": "m", "data": data}
            reply = {"jsonrpc": "2.0", "id": request.message["id"], "error": error}
            await request.respond(200, json.dumps(reply), content_type="application/json")
        return request.is_bad

    async with remote_server() as server, serving(server, misbehave) as (_, client):
        assert (await client.error("tools/call", {"name": "r:bad"}))["data"] == data


async def test_a_page_in_place_of_an_answer_is_told() -> None:
    misbehave = for_bad(200, "<html>log in</html>", content_type="text/html")
    async with remote_server() as server, serving(server, misbehave) as (_, client):
        assert (await error_of(client))["message"] == "server 'r': it answered with text/html instead of JSON"


async def cut(request: Request) -> bool:
    if request.is_bad:
        request.writer.transport.abort()
    return request.is_bad


async def cut_in_the_middle(request: Request) -> bool:
    if request.is_bad:
        await request.start(200, content_type="application/json", content_length="100")
        request.writer.write(b'{"jsonrpc"')
        await request.writer.drain()
        request.writer.transport.abort()
    return request.is_bad


async def cut_in_an_event(request: Request) -> bool:
    if request.is_bad:
        await request.start(200, content_type="text/event-stream", connection="close")
        request.writer.write(b'data: {"jsonrpc"')
        await request.writer.drain()
        request.writer.close()
    return request.is_bad


@pytest.mark.parametrize("misbehave", [cut, cut_in_the_middle, cut_in_an_event])
async def test_a_connection_that_breaks_fails_its_call_and_no_other(misbehave: Misbehaviour) -> None:
    async with remote_server() as server, serving(server, misbehave) as (app, client):
        assert (await error_of(client))["message"] == "server 'r': the connection broke before it had answered"
        assert (await client.call("r:echo"))["host"]
        assert app.health()["r"].restarts == 0


async def test_a_server_that_never_answers_fails_the_call_at_its_deadline() -> None:
    async def misbehave(request: Request) -> bool:
        if request.method == "prompts/get":
            await asyncio.Event().wait()
        return False

    async with remote_server() as server, serving(server, misbehave, prompt_timeout=0.2) as (_, client):
        error = await error_of(client, "ask", "prompts/get")
        assert error["message"] == "server 'r': it did not answer prompts/get within 0.2 s"
        assert (await client.call("r:echo"))["host"]


async def test_a_server_that_is_gone_is_unavailable_with_the_time_of_the_next_try_and_comes_back() -> None:
    async with remote_server() as server, serving(server) as (app, client):
        await server.stop()
        error = await error_of(client)
        assert error["message"].startswith("server 'r': ")
        await until(lambda: app.health()["r"].state == "failed")
        assert "connection refused or host not found" in (app.health()["r"].last_error or "")
        await server.start()
        await until(lambda: app.health()["r"].state == "running")
        assert (await client.call("r:echo"))["host"]


# Authentication.


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_refused_credentials_are_tried_once_in_30_s_and_no_call_brings_that_forward(
    status: int, transport: str
) -> None:
    async with remote_server(always(status)) as server:
        document = config(r=entry(server, type=transport))
        async with timed(build_aggregator(document, strict=False), STOPPED) as app, connected(app) as client:
            await until(lambda: app.health()["r"].state == "failed")
            health = app.health()["r"]
            attempts = len(server.requests)
            for _ in range(3):
                with pytest.raises(Exception, match="authentication failed"):
                    await app.children["r"].calls.request("tools/call", {"name": "echo"})
            assert len(server.requests) == attempts
            await client.names()
    assert f"authentication failed (HTTP {status}): check its `headers`, or log in" in (health.last_error or "")
    assert health.retry_in == 30


async def test_credentials_that_are_refused_later_take_the_server_down_and_calls_say_why() -> None:
    async with remote_server() as server, serving(server, always(401), STOPPED) as (app, client):
        error = await error_of(client)
        assert error["message"] == "server 'r': authentication failed (HTTP 401): check its `headers`, or log in"
        assert error["data"]["retryIn"] == 30
        await until(lambda: app.health()["r"].state == "failed")
        error = await error_of(client)
        assert "authentication failed (HTTP 401): check its `headers`, or log in), next try in" in error["message"]


async def test_one_call_that_is_forbidden_does_not_take_the_server_down() -> None:
    async with remote_server() as server, serving(server, for_bad(403)) as (app, client):
        assert "authentication failed (HTTP 403)" in (await error_of(client))["message"]
        assert (await client.call("r:echo"))["host"]
        assert app.health()["r"].restarts == 0


# Expired sessions.


def forgotten(how: str) -> Misbehaviour:
    """Sessions that are not the open one are refused like this; the first of them is session-1."""

    async def misbehave(request: Request) -> bool:
        if request.headers.get("mcp-session-id") != "session-1" or "id" not in request.message:
            return False
        if how == "404":
            await request.respond(404)
        elif how == "404 with an error":
            await request.refuse(404, -32001, "Session not found", with_id=False)
        else:
            await request.refuse(400, -32000, "Bad Request: No valid session ID provided", with_id=False)
        return True

    return misbehave


WAYS = ["404", "404 with an error", "400 with an error"]


@pytest.mark.parametrize("how", WAYS)
async def test_a_read_on_an_expired_session_is_asked_again_on_a_new_one(how: str) -> None:
    async with remote_server() as server, serving(server, forgotten(how)) as (app, client):
        prompt = await client.result("prompts/get", {"name": "r:ask"})
        assert prompt["messages"][0]["content"]["text"] == "session-2"
        assert server.counts["prompts/get"] == 2
        assert server.counts["initialize"] == 2
        assert server.counts["DELETE"] == 0
        assert app.health()["r"].state == "running"


@pytest.mark.parametrize("how", WAYS)
async def test_a_tool_call_on_an_expired_session_is_told_that_it_was_not_executed(how: str) -> None:
    async with remote_server() as server, serving(server, forgotten(how)) as (_, client):
        error = await error_of(client, "echo")
        assert error["message"] == "server 'r': its session had expired, the call was not executed; try again"
        assert (await client.call("r:echo"))["mcp-session-id"] == "session-2"
        assert server.counts["tools/call"] == 2


async def test_clients_see_the_same_tools_while_a_session_is_renewed() -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def misbehave(request: Request) -> bool:
        if request.method == "initialize":
            reached.set()
            await go_on.wait()
        return False

    async with remote_server() as server, serving(server, misbehave) as (_, client):
        before = await client.names()
        server.forget_session()
        reading = client.begin("prompts/get", {"name": "r:ask"})[1]
        await reached.wait()
        assert await client.names() == before
        go_on.set()
        assert "result" in await asyncio.wait_for(reading, PATIENCE)
        assert client.notifications == []


async def test_a_server_that_forgets_every_session_at_once_is_not_asked_for_new_ones_without_end() -> None:
    async def misbehave(request: Request) -> bool:
        if request.method == "prompts/get":
            await request.respond(404)
            return True
        return False

    async with remote_server() as server, serving(server, misbehave) as (_, client):
        error = await error_of(client, "ask", "prompts/get")
        assert "its session had expired" in error["message"]
        assert server.counts["prompts/get"] == 2


# Redirects.


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed(status: int) -> None:
    async with remote_server() as other:
        message = await failure_at_start(always(status, location=f"{other.url}?token={SECRET}"))
        assert other.requests == []
    assert "it redirects to another origin, which is not followed" in message


async def test_a_redirect_of_a_call_to_another_origin_is_not_followed() -> None:
    async with remote_server() as other, remote_server() as server:
        async with serving(server, for_bad(307, location=other.url)) as (_, client):
            assert "it redirects to another origin" in (await error_of(client))["message"]
        assert other.requests == []


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_in_a_circle_is_told_without_its_address(status: int) -> None:
    async with remote_server() as server, serving(server, for_bad(status, location="/mcp")) as (_, client):
        message = (await error_of(client))["message"]
        assert "it redirects again and again, or in a way that is not followed" in message
        assert "http" not in message


async def test_a_redirect_within_the_origin_is_followed_with_the_credentials() -> None:
    async def misbehave(request: Request) -> bool:
        if not request.target.startswith("/mcp/"):
            await request.respond(307, location="/mcp/")
            return True
        return False

    async with remote_server(misbehave) as server, serving(server, misbehave) as (_, client):
        assert (await client.call("r:echo"))["x-api-key"] == SECRET


async def test_sse_an_endpoint_on_another_origin_is_not_used() -> None:
    async with remote_server() as other:

        async def misbehave(request: Request) -> bool:
            await request.start(200, content_type="text/event-stream")
            request.writer.write(f"event: endpoint\ndata: {other.url}\n\n".encode())
            await request.writer.drain()
            return True

        async with remote_server(misbehave) as server:
            with pytest.raises(StartupError) as caught:
                async with build_aggregator(config(r=entry(server, type="sse")), startup_timeout=1.0):
                    pytest.fail("entered")
        assert other.requests == []
    assert SECRET not in str(caught.value)


# The SSE transport.


class SseServer:
    """MCP over SSE: a stream by GET, messages by POST to where it says."""

    def __init__(self) -> None:
        self.stream: Request | None = None
        self.refuse_with = 0
        self.flood = False
        self.many = False

    async def __call__(self, request: Request) -> bool:
        if request.http_method == "GET":
            self.stream = request
            await request.start(200, content_type="text/event-stream", connection="close")
            await self.send("endpoint", "/messages?session_id=1")
        elif self.refuse_with:
            await request.respond(self.refuse_with)
        else:
            await request.respond(202)
            await self.reply(request)
        return True

    async def reply(self, request: Request) -> None:
        if self.flood:
            assert self.stream
            self.stream.writer.write(b"data: " + b"x" * (2 * MIB))
            await self.stream.writer.drain()
        elif "id" in request.message:
            results: dict[str, Any] = {
                "initialize": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s", "version": "1"},
                },
                "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
                "tools/call": {"content": [{"type": "text", "text": json.dumps(request.target)}]},
            }
            if self.many:
                results["tools/call"] = {"content": [], "structuredContent": {"x": [[]] * ANSWER_PARTS_LIMIT}}
            reply = {"jsonrpc": "2.0", "id": request.message["id"], "result": results.get(request.method, {})}
            await self.send("message", json.dumps(reply))

    async def send(self, event: str, data: str) -> None:
        assert self.stream
        self.stream.writer.write(f"event: {event}\ndata: {data}\n\n".encode())
        await self.stream.writer.drain()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"refuse_with": 401}, "authentication failed (HTTP 401): check its `headers`, or log in"),
        ({"refuse_with": 500}, "HTTP status 500"),
        ({"flood": True}, "response too large: more than"),
    ],
    ids=["401", "500", "an event without end"],
)
async def test_sse_a_failure_ends_the_connection_and_the_call_says_which(fault: dict[str, Any], words: str) -> None:
    sse = SseServer()
    async with remote_server(sse) as server:
        document = config(r=entry(server, type="sse"))
        async with build_aggregator(document) as app, connected(app) as client:
            assert await client.call("r:echo") == "/messages?session_id=1"
            vars(sse).update(fault)
            assert words in (await error_of(client, "echo"))["message"]
            await until(lambda: app.health()["r"].state == "failed")
            assert words in (app.health()["r"].last_error or "")


async def test_sse_an_answer_of_too_many_values_is_an_error_for_its_call_and_the_connection_goes_on() -> None:
    sse = SseServer()
    async with remote_server(sse) as server:
        document = config(r=entry(server, type="sse"))
        async with build_aggregator(document) as app, connected(app) as client:
            sse.many = True
            assert (await error_of(client, "echo"))["message"] == TOO_MANY_PARTS
            sse.many = False
            assert await client.call("r:echo") == "/messages?session_id=1"
            assert app.health()["r"].restarts == 0


# Secrets.


@pytest.mark.parametrize(
    "misbehave",
    [
        always(401, www_authenticate=f'Bearer error="{SECRET}"'),
        always(403),
        always(404),
        always(500),
        always(503, retry_after=SECRET),
        always(307, location=f"/elsewhere?token={SECRET}"),
        always(302, location=f"http://user:{SECRET}@127.0.0.1:9/{SECRET}"),
        always(307, location=f"http://[{SECRET}"),
        always(200, content_type=f"text/{SECRET}{SECRET}{SECRET}{SECRET}{SECRET}{SECRET}", content_encoding=""),
        always(200, content_type="application/json", content_encoding=SECRET + "," + SECRET),
        cut,
        cut_in_the_middle,
    ],
)
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_no_failure_shows_a_secret(
    misbehave: Misbehaviour, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def for_all(request: Request) -> bool | None:
        request.message.setdefault("params", {})["name"] = "bad"
        return await misbehave(request)

    async with remote_server(for_all) as server:
        document = config(r=entry(server, type=transport))
        async with build_aggregator(document, strict=False, startup_timeout=5.0) as app, connected(app) as client:
            await until(lambda: app.health()["r"].state == "failed")
            shown = repr(app.health()) + repr(app.children["r"].last_failure) + json.dumps(await client.names())
    assert SECRET not in shown
    assert SECRET not in "\n".join(
        f"{record.getMessage()} {record.exc_text}" for record in caplog.records if record.levelno >= logging.INFO
    )


async def test_a_secret_is_in_no_line_of_the_log_of_a_server_that_works(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with remote_server() as server, serving(server) as (_, client):
        received = (await client.result("tools/call", {"name": "r:echo"}))["content"][0]["text"]
        target = server.requests[-1].target
    assert SECRET in received
    assert target == f"/mcp?token={SECRET}"
    ours = [r for r in caplog.records if not r.name.startswith(("mcp", "tests"))]
    assert ours
    assert SECRET not in "\n".join(record.getMessage() for record in ours)


async def test_a_call_that_comes_round_and_round_is_refused() -> None:
    """Two hubs without prefixes have each other, and nothing else; each has listed the other's tool, which is gone."""
    async with AsyncExitStack() as stack:
        listeners = [stack.enter_context(listening_socket("127.0.0.1", 0)) for _ in range(2)]
        urls = [f"{url_of(listener, '127.0.0.1')}/mcp" for listener in listeners]
        one, other = (config(t=lean(), peer={"url": urls[1]}), config(peer={"url": urls[0]}))
        apps = [build_aggregator(document, prefix=False, strict=False, ready_wait=0) for document in (one, other)]
        fronts = [
            await stack.enter_async_context(served(app, listener=listener))
            for app, listener in zip(apps, listeners, strict=True)
        ]
        client = await fronts[0].connect(modern=True)
        await until(lambda: all(app.health()["peer"].tools for app in apps))
        await apps[0].reload(config(peer={"url": urls[1]}))
        error = await client.error("tools/call", {"name": "echo", "arguments": {}})
    assert "it leads back here: the call comes round and round" in error["message"]
