"""The HTTP+SSE transport of 2024-11-05, for clients that know no other: everything holds there as elsewhere."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastmcp.server.auth import StaticTokenVerifier
from mcp import Client
from mcp.client.sse import sse_client
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from support.harness import PATIENCE, config, lean, talking, until
from support.memory import build_aggregator
from support.serving import served
from support.wire_sse import SseClient

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.auth.claims import claim_of
from fastmcp_aggregator.front.http import sse
from fastmcp_aggregator.front.http.security import NOT_FOUND

JSON = {"Content-Type": "application/json"}
GROUPS = {"web": {"servers": ["a"], "tools": ["echo", "hold"]}, "empty": {"servers": []}}
TOKENS = {name: {"client_id": name, "scopes": [], **claim_of(name, None)} for name in ("one", "two")}


def hub(**options: Any) -> Aggregator:
    return build_aggregator(config(a=lean()), groups=GROUPS, **options)


def with_bounds(app: Aggregator, **bounds: Any) -> Any:
    """The ASGI app, in which the two endpoints have these."""
    asgi = app.http_app(path="/mcp")
    asgi.router.routes[:0] = sse.sse_routes(app, "/mcp", app.policies, "default", **bounds)
    return asgi


async def until_idle(app: Aggregator) -> None:
    """Wait until no request has a place at the gate."""
    await until(lambda: app._backend.admission.counts() == (0, 0))


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


async def test_the_sdks_own_client_works() -> None:
    async with served(hub()) as front:
        for path in ("/mcp/sse", "/groups/web/mcp/sse"):
            async with Client(sse_client(front.url.replace("/mcp", path))) as client:
                assert "a:echo" in {tool.name for tool in (await client.list_tools()).tools}
                result = await client.call_tool("a:echo", {"x": "ä\n\u2028\r"})
                assert json.loads(result.content[0].text)["arguments"] == {"x": "ä\n\u2028\r"}


async def test_a_client_is_told_where_to_post_and_hears_everything_on_its_stream() -> None:
    async with served(hub()) as front:
        client = await front.connect_sse()
        assert urlsplit(client.endpoint).path == "/mcp/messages"
        assert client.introduction["protocolVersion"] == "2024-11-05"
        assert (await client.call("a:echo", x=1))["arguments"] == {"x": 1}
        assert set(client.statuses.values()) == {202}


async def test_progress_questions_and_list_changes_reach_the_client() -> None:
    app = build_aggregator(config(t=talking(), a=lean()))
    async with served(app) as front:
        client = await front.connect_sse(capabilities={"roots": {}})
        client.on_question = lambda method, params: {"result": {"roots": [{"uri": "file:///x"}]}}
        answer = await client.play("t", {"ask": {"a": {"method": "roots/list", "params": {}}}})
        assert "file:///x" in str(answer)
        assert [question["method"] for question in client.questions] == ["roots/list"]
        assert "a:fresh" not in await client.names()
        await client.call("a:add_tool", name="fresh")
        await client.heard("notifications/tools/list_changed")
        assert "a:fresh" in await client.names()


async def test_a_group_shows_what_is_in_it_and_nothing_else() -> None:
    async with served(hub()) as front:
        client = await front.connect_sse("web")
        assert urlsplit(client.endpoint).path == "/groups/web/mcp/messages"
        assert set(await client.names()) == {"a:echo", "a:hold"}
        assert (await client.error("tools/call", {"name": "a:pid"}))["code"] == -32602
        assert (await client.http.get(front.url.replace("/mcp", "/groups/none/mcp/sse"))).status_code == 404


async def test_who_has_the_address_of_another_program_is_told_the_right_one() -> None:
    async with served(hub()) as front, front.browser() as http:

        async def told(method: str, path: str) -> str:
            answer = await http.request(method, path)
            assert answer.status_code == 404
            return answer.text

        words = "Not Found: the MCP endpoint is {}/mcp; for clients that know only SSE: {}/mcp/sse"
        for method, path in (("GET", "/sse"), ("POST", "/sse"), ("POST", "/v1/mcp"), ("GET", "/mcpx")):
            assert await told(method, path) == words.format("", "")
        for path in ("/groups/web", "/groups/web/", "/groups/web/sse"):
            assert await told("GET", path) == words.format("/groups/web", "/groups/web")
        assert await told("GET", "/groups/none") == NOT_FOUND


async def test_a_route_of_the_embedding_program_says_in_its_own_words_what_it_has_not() -> None:
    app = hub()

    @app.custom_route("/orders", methods=["GET"])
    async def orders(_: Request) -> Response:
        raise HTTPException(404, "no such order", {"X-Order": "none"})

    async with served(app) as front, front.browser() as http:
        answer = await http.get("/orders")
    assert (answer.status_code, answer.text, answer.headers["x-order"]) == (404, "no such order", "none")


async def test_nobody_gets_in_without_credentials() -> None:
    async with served(hub(auth=StaticTokenVerifier(TOKENS))) as front, front.browser() as http:
        for method, path in (("GET", "/sse"), ("POST", "/messages?session_id=x")):
            for headers in ({}, bearer("three")):
                answer = await http.request(method, front.url + path, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_token_without_a_required_scope_is_not_enough() -> None:
    auth = StaticTokenVerifier(TOKENS, required_scopes=["mcp"])
    async with served(hub(auth=auth)) as front, front.browser(**bearer("one")) as http:
        for method, path in (("GET", "/sse"), ("POST", "/messages"), ("POST", "/tools/list"), ("POST", "")):
            assert (await http.request(method, front.url + path)).status_code in (401, 403)
        assert (await http.get(front.url.replace("/mcp", "/status"))).status_code in (401, 403)


async def test_a_session_belongs_to_who_opened_it() -> None:
    async with served(hub(auth=StaticTokenVerifier(TOKENS))) as front, front.browser() as http:
        client = await front.connect_sse(headers=bearer("one"))
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
        theirs = await http.post(client.endpoint, json=body, headers=bearer("two"))
        unknown = await http.post(front.url + "/messages?session_id=x", json=body, headers=bearer("two"))
        assert (theirs.status_code, theirs.text) == (unknown.status_code, unknown.text)
        assert theirs.status_code == 404
        assert await client.call("a:echo")


async def test_a_session_of_one_group_cannot_be_used_through_another() -> None:
    async with served(hub()) as front:
        client = await front.connect_sse("web")
        client.endpoint = client.endpoint.replace("/groups/web", "")
        assert (await client.post({"id": 7, "method": "tools/list"})).status_code == 404


@pytest.mark.parametrize(("header", "value", "status"), [("host", "evil.example", 421), ("origin", "http://x.y", 403)])
async def test_host_and_origin_are_checked(header: str, value: str, status: int) -> None:
    async with served(hub()) as front, front.browser(**{header: value}) as http:
        assert (await http.get(front.url + "/sse")).status_code == status
        assert (await http.post(front.url + "/messages?session_id=x")).status_code == status


async def test_what_is_no_message_is_refused_and_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with served(hub()) as front:
        client = await front.connect_sse()
        for content in (b"", b"{", b"[]", b'{"jsonrpc": "2.0"}', b"\xff"):
            assert (await client.http.post(client.endpoint, content=content, headers=JSON)).status_code == 400
        too_long = b" " * (4 * 1024**2 + 1)
        assert (await client.http.post(client.endpoint, content=too_long, headers=JSON)).status_code == 413
        assert (await client.http.post(client.endpoint, content=b"{}")).status_code == 415
        assert (await client.http.get(client.endpoint)).status_code == 405
        assert await client.call("a:echo")
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_a_request_keeps_its_place_until_it_is_answered_and_a_stream_has_none() -> None:
    app = hub(max_concurrent_requests=2, max_concurrent_calls=3, max_waiting_requests=0)
    async with served(app) as front:
        client, other = await front.connect_sse(), await front.connect_sse()
        await until_idle(app)
        calls = [client.begin("tools/call", {"name": "a:hold", "arguments": {}}) for _ in range(2)]
        await until(lambda: app.health()["a"].in_flight == 2)
        assert set(client.statuses.values()) == {202}
        refused = await other.post({"id": 9, "method": "tools/list"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        await app.call_tool("a:release")
        for _, call in calls:
            assert "result" in await call
        await until_idle(app)
        assert await other.call("a:echo")


async def test_a_request_that_is_cancelled_gives_its_place_back() -> None:
    app = hub(max_concurrent_requests=2, max_waiting_requests=0)
    async with served(app) as front:
        client = await front.connect_sse()
        await until_idle(app)
        request_id, _ = client.begin("tools/call", {"name": "a:hold", "arguments": {}})
        await until(lambda: app.health()["a"].in_flight == 1)
        assert (await client.post({"id": request_id, "method": "tools/list"})).status_code == 400
        client.notify("notifications/cancelled", {"requestId": request_id})
        await until(lambda: app.health()["a"].in_flight == 0)
        await until_idle(app)


async def test_a_client_that_leaves_cancels_its_calls() -> None:
    app = hub()
    async with served(app) as front:
        client = await front.connect_sse()
        client.begin("tools/call", {"name": "a:hold", "arguments": {}})
        await until(lambda: app.health()["a"].in_flight == 1)
        await client.close()
        await until(lambda: app.health()["a"].in_flight == 0)
        await until_idle(app)
        await until(lambda: not app._live_clients.connections)
        late = await front.connect_sse()
        assert (await late.http.post(client.endpoint, json={})).status_code == 404


async def test_calls_are_answered_before_the_end_and_then_the_stream_is_ended() -> None:
    app = hub()
    async with served(app) as front, app:
        client = await front.connect_sse()
        _, held = client.begin("tools/call", {"name": "a:hold", "arguments": {}})
        await until(lambda: app.health()["a"].in_flight == 1)
        front.stop.set()
        async with asyncio.timeout(PATIENCE):
            while (await client.post({"id": "late", "method": "ping"})).status_code != 503:
                await asyncio.sleep(0.005)
        assert not client.is_ended
        await app.call_tool("a:release")
        assert "result" in await held
        await until(lambda: client.is_ended)


async def test_each_caller_has_its_rate() -> None:
    app = hub(auth=StaticTokenVerifier(TOKENS), rate_limit=1, rate_burst=2)
    async with served(app) as front:
        one, two = await front.connect_sse(headers=bearer("one")), await front.connect_sse(headers=bearer("two"))
        for _ in range(2):
            await one.call("a:echo")
        error = await one.error("tools/call", {"name": "a:echo"})
        assert (error["code"], error["data"]["retryIn"] > 0) == (-32029, True)
        assert await two.call("a:echo")


async def test_a_session_too_many_is_refused() -> None:
    async with served(with_bounds(hub(), most_sessions=1)) as front:
        client = await front.connect_sse()
        assert (await client.http.get(front.url + "/sse")).status_code == 503
        await client.close()
        async with asyncio.timeout(PATIENCE):
            while not await opens(front.sse_client()):
                await asyncio.sleep(0.005)


async def opens(client: SseClient) -> bool:
    """Whether a client gets a stream."""
    await asyncio.wait({client._stream, waiting := asyncio.create_task(client.open())}, return_when="FIRST_COMPLETED")
    waiting.cancel()
    return bool(client.endpoint)


async def test_a_client_that_does_not_read_is_left() -> None:
    app = hub(max_response_size_mb=32)
    async with served(with_bounds(app, send_timeout=0.2)) as front:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            host, port = urlsplit(front.url).netloc.split(":")
            await loop.sock_connect(slow, (host, int(port)))
            await loop.sock_sendall(slow, f"GET /mcp/sse HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            told = b""
            while b"session_id=" not in told or not told.endswith(b"\r\n\r\n\r\n"):
                told += await loop.sock_recv(slow, 4096)
            path = told.split(b"data: ")[1].split()[0].decode()
            async with front.browser() as http:
                hello = {
                    "protocolVersion": "2024-11-05",
                    "capabilities": {},
                    "clientInfo": {"name": "s", "version": "1"},
                }
                await http.post(path, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
                big = {"name": "a:big", "arguments": {"size": 20_000_000}}
                for number in (1, 2):
                    await http.post(path, json={"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": big})
                await until(lambda: app._backend.admission.counts() == (0, 0) and not app._live_clients.connections)
                assert (await http.post(path, json={})).status_code == 404
