"""What reaches a remote child, and what it tells by itself, in both eras."""

import asyncio
import json
from typing import Any

import pytest
from support.harness import LEGACY, MODERN, SLOW_RETRIES, config, connected, lean, timed, until
from support.remote_server import TOOLS, Request, remote_server
from support.serving import served

from fastmcp_aggregator import ChildState, build_aggregator

pytestmark = pytest.mark.process


@pytest.mark.parametrize("modern", [False, True], ids=["legacy server", "modern server"])
async def test_a_call_that_is_cancelled_is_cancelled_at_a_remote_child(modern: bool) -> None:
    """A legacy server is told, and a modern one sees the connection close."""
    called: asyncio.Future[Request] = asyncio.get_running_loop().create_future()

    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            called.set_result(request)
        return request.is_bad

    async with remote_server(misbehave) as server:
        server.is_modern = modern
        async with build_aggregator(config(r={"url": server.url})) as app, connected(app) as client:
            request_id, _ = client.begin("tools/call", {"name": "r:bad"})
            request = await called
            client.notify("notifications/cancelled", {"requestId": request_id})
            if modern:
                await until(request.writer.transport.is_closing)
            else:
                await until(lambda: server.counts["notifications/cancelled"] == 1)
                assert server.requests[-1].message["params"]["requestId"] == request.message["id"]
            await until(lambda: app.health()["r"].in_flight == 0)
            assert (await client.call("r:echo"))["host"]


@pytest.mark.parametrize(("era", "version"), [("legacy", LEGACY), ("modern", MODERN)])
async def test_a_changed_list_of_a_remote_child_is_read_again_and_clients_are_told(era: str, version: str) -> None:
    """The remote child is an aggregator, which speaks both eras."""
    async with served(build_aggregator(config(deep=lean()))) as front:
        app = build_aggregator(config(r={"url": front.url}), servers={"r": {"era": era}})
        async with app, connected(app) as client:
            assert app.health()["r"].protocol_version == version
            await client.call("r:deep:add_tool", name="fresh")
            await client.heard("notifications/tools/list_changed")
            assert "r:deep:fresh" in await client.names()


class ChangingServer:
    """A modern server that offers one tool more as soon as its tools have been listed, and tells who listens."""

    def __init__(self) -> None:
        self.stream: Request | None = None
        self.tools = [{"name": "old", "inputSchema": {"type": "object"}}]

    async def __call__(self, request: Request) -> bool:
        if request.method == "server/discover":
            about = {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}}
            await self.answer(request, about)
        elif request.method == "subscriptions/listen":
            self.stream = request
            await request.start(200, content_type="text/event-stream", connection="close")
            wanted = request.message["params"]["notifications"]
            await self.tell("notifications/subscriptions/acknowledged", {"notifications": wanted})
        elif request.method == "tools/list":
            await self.answer(request, {"tools": self.tools})
            if len(self.tools) == 1:
                self.tools.append({"name": "new", "inputSchema": {"type": "object"}})
                await self.tell("notifications/tools/list_changed", {})
        else:
            return False
        return True

    @staticmethod
    async def answer(request: Request, result: dict[str, Any]) -> None:
        await request.answer({**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        if self.stream is not None:
            params["_meta"] = {"io.modelcontextprotocol/subscriptionId": self.stream.message["id"]}
            data = json.dumps({"jsonrpc": "2.0", "method": method, "params": params})
            self.stream.writer.write(f"data: {data}\n\n".encode())
            await self.stream.writer.drain()


async def test_a_change_that_follows_at_once_on_the_first_list_is_not_missed() -> None:
    async with remote_server(ChangingServer()) as server, build_aggregator(config(r={"url": server.url})) as app:
        await until(lambda: app.health()["r"].tools == 2)


async def test_a_flood_of_notifications_from_a_remote_child_is_dropped_and_counted_but_for_a_list_change() -> None:
    streams: list[Request] = []
    more: list[dict[str, Any]] = []

    async def misbehave(request: Request) -> bool:
        if request.http_method == "GET":
            await request.start(200, content_type="text/event-stream", connection="close")
            streams.append(request)
        if more and request.method == "tools/list":
            await request.answer({"tools": [*TOOLS, *more]})
            return True
        return request.http_method == "GET"

    def event(method: str) -> bytes:
        return b"data: " + json.dumps({"jsonrpc": "2.0", "method": method, "params": {}}).encode() + b"\n\n"

    async with (
        remote_server(misbehave) as server,
        build_aggregator(config(r={"url": server.url})) as app,
        connected(app) as client,
    ):
        await until(lambda: streams)
        more.append({"name": "fresh", "inputSchema": {"type": "object"}})
        streams[0].writer.write(event("notifications/message") * 3000 + event("notifications/tools/list_changed"))
        await client.heard("notifications/tools/list_changed")
        assert (await client.call("r:echo"))["host"]
        assert app.health()["r"].dropped_notifications > 0


async def test_a_remote_child_that_refuses_its_credentials_is_marked_in_the_status() -> None:
    async def misbehave(request: Request) -> bool:
        await request.respond(401)
        return True

    async with remote_server(misbehave) as server:
        document = config(r={"url": server.url}, missing={"command": "no-such-command"})
        async with build_aggregator(document, strict=False) as app:
            await until(lambda: all(status.state is ChildState.FAILED for status in app.health().values()))
            assert {key: status.auth_error for key, status in app.health().items()} == {"r": True, "missing": False}


async def test_a_call_to_a_remote_child_that_is_gone_says_so_and_when_it_is_tried_again() -> None:
    async with (
        remote_server() as server,
        timed(build_aggregator(config(r={"url": server.url})), SLOW_RETRIES) as app,
        connected(app) as c,
    ):
        await server.stop()
        await c.error("tools/call", {"name": "r:echo"})
        await until(lambda: app.health()["r"].state is ChildState.FAILED)
        error = await c.error("tools/call", {"name": "r:echo"})
    place = server.url.removesuffix("/mcp")
    reason = f"it is unavailable ({place}: connection refused or host not found), next try in 3600 s"
    assert error["message"] == f"server 'r': {reason}"
    assert error["data"]["retryIn"] > 3500
