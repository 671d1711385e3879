"""The private parts of the SDK and of FastMCP that this package relies on: each test's name says which one changed.

Used in `children/session/session.py`, `children/session/client_session.py`, `callers/caller.py`,
`relay/list_changed.py`, `front/fastmcp/provider.py`, `front/pipeline.py`, `front/http/server.py`,
`front/http/client_connection.py` and `aggregator.py`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from fastmcp import FastMCP
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers.local_provider import LocalProvider
from fastmcp.server.providers.proxy import ProxyClient
from fastmcp.server.transforms import Namespace
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, SubscriptionsListenRequestParams
from sse_starlette.sse import AppStatus
from support.harness import MODERN, PATIENCE, config, connected, lean, talking, until
from support.memory import build_aggregator
from support.serving import served
from support.sessions import session_with
from support.talking_server import TalkingServer, talking_server
from support.wire import EVERYTHING

from fastmcp_aggregator.children.session.client_session import RelayingSession
from fastmcp_aggregator.children.session.in_flight import InFlight, OnProgress
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.library_internals import HeldSession, session_endpoint_of, session_of

pytestmark = pytest.mark.process

VERSION_META = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_META = "io.modelcontextprotocol/clientCapabilities"


def sdk_session(session: ChildSession) -> ClientSession:
    assert isinstance(session._session, ClientSession)
    return session._session


# ClientSession, in children/session/session.py.


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_client_session_dispatcher_send_raw_request_returns_what_the_child_sent(era: str) -> None:
    async with session_with(lean(era=era)) as session:
        sdk = sdk_session(session)
        data: dict[str, Any] = {"method": "tools/call", "params": {"name": "raw", "arguments": {"content": [], "x": 1}}}
        options: dict[str, Any] = {}
        sdk._stamp(data, options)  # type: ignore[arg-type]
        raw = await sdk._dispatcher.send_raw_request("tools/call", data["params"], options)  # type: ignore[arg-type]
    assert raw["x"] == 1, "a field that no model of the SDK knows"


async def test_client_session_dispatcher_send_raw_request_raises_the_childs_error_as_mcp_error() -> None:
    async with session_with(lean()) as session:
        with pytest.raises(MCPError) as raised:
            await sdk_session(session)._dispatcher.send_raw_request("no/such/method", None, {})
    assert (raised.value.code, raised.value.message) == (-32601, "Method not found")


async def test_client_session_dispatcher_send_raw_request_takes_on_progress_as_an_option() -> None:
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with session_with(lean()) as session:
        params = {"name": "progress", "arguments": {"steps": 3}}
        await sdk_session(session)._dispatcher.send_raw_request("tools/call", params, {"on_progress": on_progress})
        await until(lambda: len(heard) == 3)


async def test_client_session_dispatcher_says_connection_closed_when_the_child_is_gone() -> None:
    async with session_with(lean()) as session:
        with pytest.raises(MCPError) as raised:
            await session.request("tools/call", {"name": "leave", "arguments": {}})
    assert (raised.value.code, raised.value.message) == (-32000, "Connection closed")
    assert session.is_over(raised.value)


async def test_client_session_stamp_puts_the_modern_envelope_into_the_params() -> None:
    async with session_with(lean(era="modern")) as session:
        data: dict[str, Any] = {"method": "tools/list"}
        options: dict[str, Any] = {}
        sdk_session(session)._stamp(data, options)  # type: ignore[arg-type]
    assert data["params"]["_meta"][VERSION_META] == MODERN
    assert {name.lower(): value for name, value in options["headers"].items()}["mcp-method"] == "tools/list"


async def test_client_session_stamp_leaves_the_params_of_a_legacy_request_alone() -> None:
    async with session_with(lean(era="legacy")) as session:
        data: dict[str, Any] = {"method": "tools/list"}
        sdk_session(session)._stamp(data, {})
    assert data == {"method": "tools/list"}


async def test_client_session_x_mcp_header_maps_decide_which_arguments_become_headers() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    async with session_with(lean(era="modern")) as session:
        session.mirror_headers({"echo": schema})
        assert sdk_session(session)._x_mcp_header_maps.keys() == {"echo"}
        options: dict[str, Any] = {}
        data = {"method": "tools/call", "params": {"name": "echo", "arguments": {"region": "eu", "x": 1}}}
        sdk_session(session)._stamp(data, options)  # type: ignore[arg-type]
    assert {name.lower(): value for name, value in options["headers"].items()}["mcp-param-region"] == "eu"


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "server/discover"])
async def test_client_session_kwargs_log_level_decides_whether_a_modern_child_is_asked_for_its_log(method: str) -> None:
    assert "log_level" in ProxyClient(FastMCP("seams"))._session_kwargs
    async with session_with(lean(era="modern")) as session:
        data: dict[str, Any] = {"method": method}
        sdk_session(session)._stamp(data, {})
    assert VERSION_META in data["params"]["_meta"]
    assert "io.modelcontextprotocol/logLevel" not in data["params"]["_meta"]


# ClientSession and the transports, in children/session/client_session.py and children/session/in_flight.py.


CURRENT: ContextVar[str] = ContextVar("request", default="none")


class Recorder:
    """An `Incoming` that keeps what it is shown, and answers every question with its parameters."""

    def __init__(self) -> None:
        self.notified_of: list[tuple[str, Any]] = []
        self.asked_for: list[tuple[str, Any, str]] = []

    def on_notification(self, method: str, params: Mapping[str, Any], related: InFlight | None) -> bool:
        self.notified_of.append((method, params))
        return True

    async def on_request(
        self, method: str, params: Mapping[str, Any], related: InFlight | None, on_progress: OnProgress
    ) -> dict[str, Any]:
        self.asked_for.append((method, params, CURRENT.get()))
        await on_progress(1, 2, "half")
        return {"x-unknown": params}


@asynccontextmanager
async def recorded() -> AsyncIterator[tuple[RelayingSession, Recorder, TalkingServer]]:
    """A session with a remote talking child, and what records what that says."""
    recorder = Recorder()
    async with (
        talking_server() as server,
        streamable_http_client(server.url) as (reader, writer),
        RelayingSession(reader, writer, incoming=recorder, capabilities={}) as session,
    ):
        await session.initialize()
        yield session, recorder, server


async def play(session: ClientSession, *script: dict[str, Any], **meta: Any) -> Any:
    params = {"name": "play", "arguments": {"script": script}, "_meta": meta}
    result = await session._dispatcher.send_raw_request("tools/call", params, {})
    return json.loads(result["content"][0]["text"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_client_session_build_capabilities_is_what_a_child_is_told(era: str) -> None:
    async with session_with(talking(era=era), capabilities={"roots": {"listChanged": True}}) as session:
        report = json.loads((await session.request("tools/call", {"name": "report"}))["content"][0]["text"])
    told = report["client"] if era == "legacy" else {"capabilities": report["meta"][CAPABILITIES_META]}
    assert told["capabilities"] == {"roots": {"listChanged": True}}


async def test_client_session_intercept_notification_sees_all_of_them_as_they_came_in_order() -> None:
    said = [{"say": "notifications/message", "params": {"n": number, "x-unknown": [None]}} for number in range(50)]
    async with recorded() as (session, recorder, _):
        await play(session, {"say": "notifications/x-unknown"}, *said)
        assert recorder.notified_of == [
            ("notifications/x-unknown", {}),
            *(("notifications/message", step["params"]) for step in said),
        ], "before the result"


async def test_client_session_on_request_answers_a_question_as_it_came_and_can_report_progress_on_it() -> None:
    params = {"x-unknown": {"deep": [None]}, "_meta": {"progressToken": "the child's"}}
    async with recorded() as (session, recorder, _):
        brought = await play(session, {"ask": {"a": {"method": "sampling/createMessage", "params": params}}})
        report = await session._dispatcher.send_raw_request("tools/call", {"name": "report"}, {})
    assert brought == [{"a": {"x-unknown": params}}]
    assert recorder.asked_for == [("sampling/createMessage", params, "none")]
    progress = {"progressToken": "the child's", "progress": 1, "total": 2, "message": "half"}
    assert ["notifications/progress", progress] in json.loads(report["content"][0]["text"])["notifications"]


async def test_streamable_http_client_handles_the_stream_of_a_request_in_the_context_in_which_it_was_sent() -> None:
    question = {"ask": {"a": {"method": "roots/list", "params": {}}}}

    async def play_as(name: str) -> None:
        CURRENT.set(name)
        await play(session, {"wait": "gate"}, question)

    async with recorded() as (session, recorder, server):
        plays = [asyncio.create_task(play_as(name)) for name in ("one", "two")]
        await until(lambda: server.child.report()["playing"] == 2)
        await session._dispatcher.send_raw_request("tools/call", {"name": "open", "arguments": {"gate": "gate"}}, {})
        await asyncio.gather(*plays)
        assert {context for _, _, context in recorder.asked_for} == {"one", "two"}


async def test_context_receive_stream_last_context_is_that_of_the_request_on_whose_stream_a_message_came() -> None:
    async with talking_server() as server, streamable_http_client(server.url) as (reader, writer):
        CURRENT.set("the reader's")
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        for number, params in enumerate([hello, {**hello, "x": 1}]):
            token = CURRENT.set(f"request {number}")
            request = JSONRPCRequest(jsonrpc="2.0", id=number, method="initialize", params=params)
            await writer.send(SessionMessage(request))
            CURRENT.reset(token)
        contexts = {}
        for _ in range(2):
            message = (await reader.receive()).message
            contexts[message.id] = reader.last_context[CURRENT]
    assert contexts == {0: "request 0", 1: "request 1"}


# ServerSession and Connection, in front/pipeline.py, callers/caller.py and relay/list_changed.py.


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


async def test_server_session_request_outbound_notifies_on_the_requests_own_channel_and_asks_there(
    app: FastMCP[Any],
) -> None:
    heard: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async def ask(ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        if ctx.method != "tools/list":
            return await call_next(ctx)
        await ctx.session._request_outbound.notify("notifications/x-unknown", {"x": [None]})
        params = {"y": 1, "_meta": {"own": 2}}
        answer = await ctx.session._request_outbound.send_raw_request(
            "roots/list", params, {"on_progress": on_progress}
        )
        return {"tools": [], "answer": answer}

    app._mcp_server.middleware.insert(0, ask)
    async with served(app) as front:
        client = await front.connect(capabilities=EVERYTHING)
        request_id, response = client.begin("tools/list")
        question = await client.question("roots/list")
        token = question["params"]["_meta"].pop("progressToken")
        assert question["params"] == {"y": 1, "_meta": {"own": 2}}
        client.notify("notifications/progress", {"progressToken": token, "progress": 0.5})
        await until(lambda: heard)
        client.write({"id": question["id"], "result": {"x-unknown": [None]}})
        assert (await response)["result"]["answer"] == {"x-unknown": [None]}
    methods = [message.get("method") for message in client.streams[request_id]]
    assert methods == ["notifications/x-unknown", "roots/list", None], "all on the request's own stream"
    assert heard == [0.5]


@pytest.mark.parametrize("modern", [False, True])
async def test_server_session_connection_outbound_is_one_for_a_pipe_and_none_for_modern_http(
    app: FastMCP[Any], modern: bool
) -> None:
    watch = Watch(app)
    async with connected(app, modern=modern) as client:
        await client.result("tools/list")
        one = watch.connection("tools/list")
        await client.result("tools/list")
        other = watch.connection("tools/list")
        assert one.has_standalone_channel
        assert one.outbound is other.outbound
    async with served(app) as front:
        await (await front.connect(modern=modern)).result("tools/list")
        assert watch.connection("tools/list").has_standalone_channel is not modern


async def test_server_session_connection_state_is_kept_between_the_requests_of_a_legacy_client(
    app: FastMCP[Any],
) -> None:
    watch = Watch(app)
    async with connected(app) as client:
        watch.connection("initialize").state["mine"] = 1
        await client.result("tools/list")
        assert watch.connection("tools/list").state["mine"] == 1


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


async def test_fastmcp_request_context_srctx_is_the_sdks_context_of_the_request_that_is_served(
    app: FastMCP[Any],
) -> None:
    served_in: list[Any] = []

    @app.tool
    def look() -> str:
        request = get_context().request_context
        assert request is not None
        served_in.append(request._srctx)
        return "seen"

    watch = Watch(app)
    async with connected(app) as client:
        await client.result("tools/call", {"name": "look", "arguments": {}, "_meta": {"own": 1}})
    (srctx,) = served_in
    assert isinstance(srctx, ServerRequestContext)
    assert srctx.request_id == watch.contexts["tools/call"].request_id
    assert srctx.session._connection is watch.connection("tools/call")
    assert srctx.params["_meta"] == {"own": 1}


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


# uvicorn and sse-starlette, in front/http/server.py and front/http/client_connection.py.


def test_uvicorn_server_capture_signals_is_the_context_manager_that_takes_over_the_signals() -> None:
    server = uvicorn.Server(uvicorn.Config(lambda: None))
    assert isinstance(server.capture_signals(), AbstractContextManager)
    assert server.should_exit is False


def test_sse_starlette_app_status_should_exit_is_the_switch_that_ends_streams() -> None:
    assert AppStatus.should_exit is False


# The dispatcher's numbers, for children/session/direct.py; sessions over HTTP, in library_internals.py.


async def test_dispatcher_allocate_id_gives_numbers_that_its_own_requests_do_not_use() -> None:
    async with build_aggregator(config(a=lean())) as app:
        (session,) = (child.session for child in app._backend.children.values())
        assert session is not None
        own = session._session._dispatcher._allocate_id()
        await session.request("ping", None)
        assert session._session._dispatcher._allocate_id() == own + 2


async def test_session_manager_keeps_open_sessions_by_id_with_their_owner_and_counts_their_requests() -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front, httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
        origin, endpoint = front.origin, session_endpoint_of(front.asgi, "/mcp")
        assert endpoint is not None
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        headers = {"accept": "application/json, text/event-stream"}
        opened = await http.post(f"{origin}/mcp", json=request, headers=headers)
        session_id = opened.headers["mcp-session-id"]
        session = session_of(endpoint, session_id, {})
        assert session is not None
        assert session_of(endpoint, "f" * 32, {}) is None
        assert session.idle_scope is not None
        await until(lambda: not session._requests_in_flight)
        for age in (0.0, 10.0):  # seconds since a request was over
            session.idle_scope.deadline -= age
            before = session.idle_scope.deadline
            held = HeldSession(session, asyncio.get_running_loop())
            assert session._requests_in_flight == 1
            assert session.idle_scope.deadline == (math.inf if age else before)
            held.release()
            assert session._requests_in_flight == 0
            assert before + age - 1.0 < session.idle_scope.deadline < math.inf
        await http.delete(f"{origin}/mcp", headers={**headers, "mcp-session-id": session_id})
        assert session_of(endpoint, session_id, {}) is None
