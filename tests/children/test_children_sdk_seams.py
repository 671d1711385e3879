"""The private parts of the SDK and of FastMCP that this package relies on: each test's name says which one changed.

Used in `children/session.py`, `relay/list_changed.py`, `front/requests.py`, `front/http.py` and `aggregator.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from fastmcp import FastMCP
from fastmcp.server.providers.local_provider import LocalProvider
from fastmcp.server.providers.proxy import ProxyClient
from fastmcp.server.transforms import Namespace
from harness import MODERN, connected, lean, until
from mcp import ClientSession
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import SubscriptionsListenRequestParams
from sse_starlette.sse import AppStatus

from fastmcp_aggregator.children.process import ChildProcess
from fastmcp_aggregator.children.session import ChildSession, open_session
from fastmcp_aggregator.children.stdio import ProcessTransport
from fastmcp_aggregator.config import StdioServer

VERSION_META = "io.modelcontextprotocol/protocolVersion"


@asynccontextmanager
async def child_session(**options: Any) -> AsyncIterator[ChildSession]:
    entry = lean(**options)
    process = await ChildProcess.spawn(
        StdioServer(key="lean", label="lean", command=entry["command"], args=tuple(entry["args"]))
    )
    try:
        transport = ProcessTransport(process)
        async with open_session(transport, era="auto", version="1", on_list_changed=lambda: None) as session:
            yield session
    finally:
        await process.stop()


def sdk_session(session: ChildSession) -> ClientSession:
    assert isinstance(session._session, ClientSession)
    return session._session


# ClientSession, in children/session.py.


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_client_session_dispatcher_send_raw_request_returns_what_the_child_sent(era: str) -> None:
    async with child_session(era=era) as session:
        sdk = sdk_session(session)
        data: dict[str, Any] = {"method": "tools/call", "params": {"name": "raw", "arguments": {"content": [], "x": 1}}}
        options: dict[str, Any] = {}
        sdk._stamp(data, options)  # type: ignore[arg-type]
        raw = await sdk._dispatcher.send_raw_request("tools/call", data["params"], options)  # type: ignore[arg-type]
    assert raw["x"] == 1, "a field that no model of the SDK knows"


async def test_client_session_dispatcher_send_raw_request_raises_the_childs_error_as_mcp_error() -> None:
    async with child_session() as session:
        with pytest.raises(MCPError) as raised:
            await sdk_session(session)._dispatcher.send_raw_request("no/such/method", None, {})
    assert (raised.value.code, raised.value.message) == (-32601, "Method not found")


async def test_client_session_dispatcher_send_raw_request_takes_on_progress_as_an_option() -> None:
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with child_session() as session:
        params = {"name": "progress", "arguments": {"steps": 3}}
        await sdk_session(session)._dispatcher.send_raw_request("tools/call", params, {"on_progress": on_progress})
        await until(lambda: len(heard) == 3)


async def test_client_session_dispatcher_says_connection_closed_when_the_child_is_gone() -> None:
    async with child_session() as session:
        with pytest.raises(MCPError) as raised:
            await session.request("tools/call", {"name": "leave", "arguments": {}})
    assert (raised.value.code, raised.value.message) == (-32000, "Connection closed")
    assert session.is_over(raised.value)


async def test_client_session_stamp_puts_the_modern_envelope_into_the_params() -> None:
    async with child_session(era="modern") as session:
        data: dict[str, Any] = {"method": "tools/list"}
        options: dict[str, Any] = {}
        sdk_session(session)._stamp(data, options)  # type: ignore[arg-type]
    assert data["params"]["_meta"][VERSION_META] == MODERN
    assert {name.lower(): value for name, value in options["headers"].items()}["mcp-method"] == "tools/list"


async def test_client_session_stamp_leaves_the_params_of_a_legacy_request_alone() -> None:
    async with child_session(era="legacy") as session:
        data: dict[str, Any] = {"method": "tools/list"}
        sdk_session(session)._stamp(data, {})
    assert data == {"method": "tools/list"}


async def test_client_session_x_mcp_header_maps_decide_which_arguments_become_headers() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    async with child_session(era="modern") as session:
        session.mirror_headers("echo", schema)
        assert sdk_session(session)._x_mcp_header_maps.keys() == {"echo"}
        options: dict[str, Any] = {}
        data = {"method": "tools/call", "params": {"name": "echo", "arguments": {"region": "eu", "x": 1}}}
        sdk_session(session)._stamp(data, options)  # type: ignore[arg-type]
    assert {name.lower(): value for name, value in options["headers"].items()}["mcp-param-region"] == "eu"


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "server/discover"])
async def test_client_session_kwargs_log_level_decides_whether_a_modern_child_is_asked_for_its_log(method: str) -> None:
    assert "log_level" in ProxyClient(FastMCP("seams"))._session_kwargs
    async with child_session(era="modern") as session:
        data: dict[str, Any] = {"method": method}
        sdk_session(session)._stamp(data, {})
    assert VERSION_META in data["params"]["_meta"]
    assert "io.modelcontextprotocol/logLevel" not in data["params"]["_meta"]


# ServerSession and Connection, in front/requests.py and relay/list_changed.py.


class Watch:
    """A middleware of the SDK's server that keeps the context of each message."""

    def __init__(self, app: FastMCP[Any]) -> None:
        self.contexts: dict[str, ServerRequestContext[Any, Any]] = {}
        app._mcp_server.middleware.insert(0, self)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        self.contexts[ctx.method] = ctx
        return await call_next(ctx)

    def connection(self, method: str) -> Any:
        return self.contexts[method].session._connection


@pytest.fixture
def app() -> FastMCP[Any]:
    app: FastMCP[Any] = FastMCP("seams", version="7")

    @app.tool
    def own() -> str:
        return "own"

    return app


async def test_server_session_connection_is_one_object_for_all_requests_of_a_client(app: FastMCP[Any]) -> None:
    watch = Watch(app)
    async with connected(app) as client:
        await client.result("tools/list")
        assert watch.connection("initialize") is watch.connection("tools/list")
        async with connected(app):
            assert watch.connection("initialize") is not watch.connection("tools/list")


async def test_server_session_connection_exit_stack_is_unwound_when_the_client_leaves(app: FastMCP[Any]) -> None:
    watch, left = Watch(app), asyncio.Event()
    async with connected(app) as client:
        await client.result("ping")
        watch.connection("ping").exit_stack.callback(left.set)
        assert not left.is_set()
    assert left.is_set()


async def test_server_session_connection_initialized_is_an_event_that_the_notification_sets(app: FastMCP[Any]) -> None:
    watch = Watch(app)
    async with connected(app, handshake=False) as client:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        await client.result("initialize", params)
        connection = watch.connection("initialize")
        assert isinstance(connection.initialized, anyio.Event)
        assert not connection.initialized.is_set()
        client.notify("notifications/initialized")
        await until(connection.initialized.is_set)


async def test_server_session_connection_initialize_accepted_is_false_before_initialize_only(app: FastMCP[Any]) -> None:
    watch = Watch(app)
    async with connected(app, handshake=False) as client:
        await client.error("tools/list")
        assert watch.connection("tools/list").initialize_accepted is False
        await client.start()
        assert watch.connection("initialize").initialize_accepted is True


async def test_server_session_connection_initialize_accepted_is_true_for_a_modern_client(app: FastMCP[Any]) -> None:
    watch = Watch(app)
    async with connected(app, modern=True) as client:
        await client.result("tools/list")
    assert watch.connection("tools/list").initialize_accepted is True


async def test_server_session_connection_notify_reaches_a_legacy_client(app: FastMCP[Any]) -> None:
    watch = Watch(app)
    async with connected(app) as client:
        await watch.connection("initialize").notify("notifications/tools/list_changed", None)
        heard = await client.heard("notifications/tools/list_changed")
    assert heard == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def test_server_session_connection_notify_does_not_raise_when_the_client_has_left(app: FastMCP[Any]) -> None:
    watch = Watch(app)
    async with connected(app):
        connection = watch.connection("initialize")
    await connection.notify("notifications/tools/list_changed", None)


# FastMCP's low-level server, in aggregator.py.


async def test_mcp_server_middleware_is_a_list_whose_first_entry_is_outermost_and_may_answer_with_a_dict(
    app: FastMCP[Any],
) -> None:
    async def answer(ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        return {"tools": [], "x-ours": True} if ctx.method == "tools/list" else await call_next(ctx)

    assert isinstance(app._mcp_server.middleware, list)
    app._mcp_server.middleware.insert(0, answer)
    async with connected(app) as client:
        assert await client.result("tools/list") == {"tools": [], "x-ours": True}


async def test_mcp_server_get_tool_input_schema_is_unset_and_asked_when_a_modern_call_comes_over_http(
    app: FastMCP[Any],
) -> None:
    asked: list[str] = []
    assert app._mcp_server.get_tool_input_schema is None
    app._mcp_server.get_tool_input_schema = asked.append
    envelope = {
        VERSION_META: MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "own",
        "Mcp-Param-Region": "eu",
    }
    params = {"name": "own", "arguments": {}, "_meta": envelope}
    http_app = app.http_app(path="/mcp")
    async with (
        http_app.router.lifespan_context(http_app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(http_app), base_url="http://127.0.0.1") as client,
    ):
        response = await client.post(
            "/mcp",
            headers=headers,
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        )
    assert response.status_code == 200, response.text
    assert asked == ["own"]


def test_mcp_server_server_info_stamp_is_a_fresh_dict_of_name_and_version(app: FastMCP[Any]) -> None:
    stamp = app._mcp_server.server_info_stamp
    assert (stamp["name"], stamp["version"]) == ("seams", "7")
    assert json.loads(json.dumps(stamp)) == stamp
    assert app._mcp_server.server_info_stamp is not stamp


async def test_mcp_server_add_request_handler_replaces_the_one_for_subscriptions_listen(app: FastMCP[Any]) -> None:
    asked: list[Any] = []

    async def listen(ctx: ServerRequestContext[Any, Any], params: Any) -> Any:
        asked.append(params)
        raise MCPError(-32000, "ours")

    app._mcp_server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)
    async with connected(app, modern=True) as client:
        error = await client.error("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert error["message"] == "ours"
    assert isinstance(asked[0], SubscriptionsListenRequestParams)


def test_mcp_server_run_and_create_initialization_options_exist(app: FastMCP[Any]) -> None:
    """`connected`, and with it every test on the wire, and `run_stdio_async` serve through them."""
    assert app._mcp_server.create_initialization_options().server_name == "seams"
    assert asyncio.iscoroutinefunction(app._mcp_server.run)


# FastMCP itself, in aggregator.py.


def test_fastmcp_transforms_is_a_list_that_add_transform_fills() -> None:
    app: FastMCP[Any] = FastMCP("seams")
    assert app._transforms == []
    app.add_transform(Namespace("x"))
    assert len(app._transforms) == 1


def test_fastmcp_has_one_provider_of_its_own_beside_those_that_are_added(app: FastMCP[Any]) -> None:
    assert app.providers == [app.local_provider]
    app.add_provider(LocalProvider())
    assert len(app.providers) == 2
    app.mount(FastMCP("mounted"))
    assert len(app.providers) == 3


def test_local_provider_components_holds_what_the_app_itself_offers(app: FastMCP[Any]) -> None:
    assert len(app.local_provider._components) == 1
    assert not FastMCP("empty").local_provider._components


async def test_fastmcp_lifespan_manager_runs_the_lifespan_once_for_nested_entries() -> None:
    told: list[str] = []

    @asynccontextmanager
    async def lifespan(_: FastMCP[Any]) -> AsyncIterator[None]:
        told.append("start")
        yield
        told.append("end")

    app: FastMCP[Any] = FastMCP("seams", lifespan=lifespan)
    async with app._lifespan_manager():
        async with app._lifespan_manager():
            assert told == ["start"]
        assert told == ["start"]
    assert told == ["start", "end"]
    async with app._lifespan_manager():
        assert told == ["start", "end", "start"]


# uvicorn and sse-starlette, in front/http.py.


def test_uvicorn_server_capture_signals_is_the_context_manager_that_takes_over_the_signals() -> None:
    server = uvicorn.Server(uvicorn.Config(lambda: None))
    assert isinstance(server.capture_signals(), AbstractContextManager)
    assert server.should_exit is False


def test_sse_starlette_app_status_should_exit_is_the_switch_that_ends_streams() -> None:
    assert AppStatus.should_exit is False
