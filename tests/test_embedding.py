"""Every way to use the aggregator from Python."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import Middleware
from fastmcp.server.transforms import Namespace
from fastmcp.utilities.tests import run_server_async
from starlette.applications import Starlette
from starlette.routing import Mount
from support.harness import PATIENCE, RawClient, config, connected, free_port, lean, timed, until
from support.memory import build_aggregator
from support.serving import served
from support.wire import until_answered

import fastmcp_aggregator
from fastmcp_aggregator import (
    AggregatorError,
    AggregatorSettings,
    ConfigError,
    McpConfig,
    ServerStatus,
    StartupError,
    load_config,
)
from fastmcp_aggregator.children.timings import Timings

RESOURCES = [{"uri": "note:///a", "name": "a"}]
TEMPLATES = [{"uriTemplate": "note:///{id}", "name": "notes", "description": "All notes"}]
PROMPTS = [{"name": "ask", "arguments": [{"name": "topic", "required": True}]}]


def offering(**options: Any) -> dict[str, Any]:
    return lean(resources=RESOURCES, templates=TEMPLATES, prompts=PROMPTS, **options)


def text(result: Any) -> Any:
    return json.loads(result.content[0].text)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_in_memory_client(mode: str) -> None:
    app = build_aggregator(config(a=offering(), b=offering(era="modern")))
    async with Client(app, mode=mode) as client:
        assert len(await client.list_tools()) == 2 * len((await client.list_tools())[::2])
        assert text(await client.call_tool("a:echo", {"x": 1}))["arguments"] == {"x": 1}
        assert (await client.read_resource("note://b//a"))[0].text == "lean reads note:///a"  # type: ignore[union-attr]
        prompt = await client.get_prompt("b:ask", {"topic": "t"})
        assert json.loads(prompt.messages[0].content.text) == {"topic": "t"}  # type: ignore[union-attr]


async def test_async_with_tells_the_health_of_each_server() -> None:
    async with build_aggregator(config(a=offering(), b=lean(era="modern"))) as hub:
        health = hub.health()
        assert list(health) == ["a", "b"]
        a = health["a"]
        assert isinstance(a, ServerStatus)
        assert (a.state, a.protocol_version, a.resources, a.templates, a.prompts) == ("running", "2025-11-25", 1, 1, 1)
        assert a.tools == health["b"].tools > 0
        assert (await hub.call_tool("a:echo", {"x": 1})).content
        assert {tool.name for tool in await hub.list_tools()} >= {"a:echo", "b:echo"}


async def test_mounted_under_a_namespace_in_another_server() -> None:
    parent = FastMCP("parent")

    @parent.tool
    def own() -> str:
        return "parent's"

    parent.mount(build_aggregator(config(a=offering(), b=offering(era="modern"))), namespace="hub")
    async with Client(parent) as client:
        await until_async(client, "hub_a:echo")
        names = {tool.name for tool in await client.list_tools()}
        assert {"own", "hub_a:echo", "hub_b:echo"} <= names
        assert text(await client.call_tool("hub_b:echo", {"x": 1}))["arguments"] == {"x": 1}
        uris = {str(resource.uri) for resource in await client.list_resources()}
        assert "note://hub/a//a" in uris
        assert (await client.read_resource("note://hub/a//a"))[0].text == "lean reads note:///a"  # type: ignore[union-attr]
        assert (await client.read_resource("note://hub/b//77"))[0].text == "lean reads note:///77"  # type: ignore[union-attr]
        assert {t.uri_template for t in await client.list_resource_templates()} == {
            "note://hub/a//{id}",
            "note://hub/b//{id}",
        }
        prompt = await client.get_prompt("hub_a:ask", {"topic": "t"})
        assert json.loads(prompt.messages[0].content.text) == {"topic": "t"}  # type: ignore[union-attr]
        with pytest.raises(ToolError):
            await client.call_tool("hub_a:error", {"code": -32001, "message": "told to"})


async def until_async(client: Any, name: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while name not in {tool.name for tool in await client.list_tools()}:
            await asyncio.sleep(0.01)


async def test_as_an_asgi_app_inside_a_starlette_application() -> None:
    app = build_aggregator(config(a=offering(), b=lean(era="modern"))).http_app(path="/mcp")
    outer = Starlette(routes=[Mount("/tools", app=app)], lifespan=app.lifespan)
    server = uvicorn.Server(uvicorn.Config(outer, port=0, log_level="warning", lifespan="on"))
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}/tools/mcp") as client:
            assert text(await client.call_tool("a:echo", {"x": 1}))["arguments"] == {"x": 1}
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, PATIENCE)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_over_http_for_clients_of_both_eras(mode: str) -> None:
    app = build_aggregator(config(a=offering(), b=offering(era="modern")))
    async with run_server_async(app) as url, Client(url, mode=mode) as client:
        assert {tool.name for tool in await client.list_tools()} >= {"a:echo", "b:echo"}
        for name in ("a:echo", "b:echo"):
            assert text(await client.call_tool(name, {"x": 1}))["arguments"] == {"x": 1}


async def test_over_http_an_aggregator_is_a_child_of_another_and_its_headers_stay_there() -> None:
    inner = build_aggregator(config(deep=offering(), era=lean(era="modern")))
    async with served(inner) as front:
        document = config(team={"url": front.url, "headers": {"X-Key": "k"}})
        async with build_aggregator(document) as outer, connected(outer) as client:
            assert (await client.call("team:deep:echo", x=1))["arguments"] == {"x": 1}
            assert (await client.result("resources/read", {"uri": "note://team/deep//a"}))["contents"] == [
                {"uri": "note://team/deep//a", "text": "lean reads note:///a"}
            ]
            assert outer.health()["team"].protocol_version == "2026-07-28"
            await client.call("team:deep:add_tool", name="fresh")
            await client.heard("notifications/tools/list_changed")
            assert "team:deep:fresh" in await client.names()


@asynccontextmanager
async def remote_server(port: int) -> AsyncIterator[None]:
    """An aggregator over HTTP in a process of its own, killed at the end."""
    program = (
        "import json, sys; from fastmcp_aggregator import build_aggregator; "
        "build_aggregator(json.loads(sys.argv[1])).run(transport='http', port=int(sys.argv[2]))"
    )
    arguments = ["-c", program, json.dumps(config(deep=lean())), str(port)]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        await until_answered(lambda: is_connected(port), bool)
        yield
    finally:
        process.kill()
        await process.wait()


async def is_connected(port: int) -> bool:
    """Whether a program listens there."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


@pytest.mark.process
async def test_a_remote_child_that_goes_away_fails_and_comes_back() -> None:
    port = free_port()
    document = config(team={"url": f"http://127.0.0.1:{port}/mcp", "headers": {"Authorization": "Bearer s3cret"}})
    app = fastmcp_aggregator.build_aggregator(document, strict=False, ready_wait=0.0)
    async with timed(app, Timings(last_ceiling=0.2, crash_loop=1000)), connected(app) as client:
        async with remote_server(port):
            await answering(client)
            assert (await client.call("team:deep:echo"))["tool"] == "echo"
        error = await client.error("tools/call", {"name": "team:deep:echo"})
        assert "server 'team'" in error["message"]
        assert "s3cret" not in json.dumps(error)
        await until(lambda: app.health()["team"].state == "failed")
        async with remote_server(port):
            await answering(client)
            assert (await client.call("team:deep:echo"))["tool"] == "echo"


async def answering(client: RawClient) -> None:
    """Wait until the remote server can be called; each call brings the next attempt forward."""
    call = {"name": "team:deep:echo", "arguments": {}}
    await until_answered(lambda: client.send("tools/call", call), lambda answer: "result" in answer)


async def test_an_unreachable_remote_child_is_explained_without_its_secrets() -> None:
    document = config(
        team={"url": "http://127.0.0.1:9/mcp?token=s3cret", "headers": {"Authorization": "Bearer s3cret"}}
    )
    with pytest.raises(StartupError) as caught:
        async with build_aggregator(document):
            pytest.fail("entered")
    assert "http://127.0.0.1:9: connection refused or host not found" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_host_and_origin_are_checked() -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front, front.browser() as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accept = {"Accept": "application/json, text/event-stream"}
        foreign = await http.post(front.url, json=body, headers={"Origin": "http://evil.example", **accept})
        rebound = await http.post(front.url, json=body, headers={"Host": "evil.example", **accept})
    assert (foreign.status_code, rebound.status_code) == (403, 421)


async def test_a_bind_beyond_loopback_without_authentication_is_refused() -> None:
    app = build_aggregator(config(a=lean()))
    with pytest.raises(AggregatorError, match=r"refusing to listen on 0\.0\.0\.0"):
        await app.run_http_async(host="0.0.0.0", port=0)


async def test_the_header_check_of_a_modern_http_call_lists_nothing() -> None:
    """Without a look-up of ours the SDK lists all tools before each call that has arguments."""
    app = build_aggregator(config(a=lean()))
    listed = []

    class Watch(Middleware):
        async def on_list_tools(self, context: Any, call_next: Any) -> Any:
            listed.append(context)
            return await call_next(context)

    app.add_middleware(Watch())
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "a:echo", "arguments": {"x": 1}, "_meta": meta}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "a:echo",
    }
    async with served(app) as front, front.browser() as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await http.post(front.url, json=body, headers=headers)
    assert "result" in answer.json(), answer.text
    assert listed == []


async def test_fastmcp_middleware_sees_calls_lists_and_reads_and_results_stay_the_childs_own() -> None:
    seen: list[str] = []

    class Watch(Middleware):
        async def on_request(self, context: Any, call_next: Any) -> Any:
            seen.append(context.method)
            return await call_next(context)

    extra = {"title": "Own", "_meta": {"own": 1}, "inputSchema": {"type": "object", "$defs": {"a": {}}}}
    app = build_aggregator(config(a=offering(tool_extra=extra)))
    app.add_middleware(Watch())
    result = {
        "content": [{"type": "resource_link", "uri": "note:///a", "name": "a"}],
        "isError": True,
        "_meta": {"m": 1, "ui": {"resourceUri": "ui://page"}},
    }
    async with app, connected(app) as client:
        tool = (await client.result("tools/list"))["tools"][0]
        got = await client.result("tools/call", {"name": "a:raw", "arguments": result})
        progress = await client.result("tools/call", {"name": "a:progress", "_meta": {"progressToken": "t"}})
        read = await client.result("resources/read", {"uri": "note://a//a"})
        from_template = await client.result("resources/read", {"uri": "note://a//7"})
        prompt = await client.result("prompts/get", {"name": "a:ask", "arguments": {"topic": "t"}})
        resource = (await client.result("resources/list"))["resources"][0]
        template = (await client.result("resources/templates/list"))["resourceTemplates"][0]
        listed_prompt = (await client.result("prompts/list"))["prompts"][0]
        unknown = await client.error("tools/call", {"name": "a:ecko"})
        heard = [n["params"]["progressToken"] for n in client.notifications if n["method"] == "notifications/progress"]
    assert tool == {"name": "a:echo", "description": "The tool echo.", **extra}
    assert got == {
        "content": [{"type": "resource_link", "uri": "note://a//a", "name": "a"}],
        "isError": True,
        "_meta": {"m": 1, "ui": {"resourceUri": "ui://a/page"}},
    }
    assert progress["content"]
    assert heard == ["t"] * 3
    assert read["contents"][0]["text"] == "lean reads note:///a"
    assert from_template["contents"][0]["text"] == "lean reads note:///7"
    assert prompt["messages"][0]["role"] == "user"
    assert resource == RESOURCES[0] | {"uri": "note://a//a"}
    assert template == TEMPLATES[0] | {"uriTemplate": "note://a//{id}"}
    assert listed_prompt == PROMPTS[0] | {"name": "a:ask"}
    assert unknown["message"].startswith("Tool not found: a:ecko\nDid you mean: a:echo")
    assert {"tools/list", "tools/call", "resources/read", "prompts/get"} <= set(seen)


async def test_components_of_the_apps_own_are_served_beside_those_of_the_children() -> None:
    app = build_aggregator(config(a=offering()))

    @app.tool
    def own(x: int) -> int:
        return x + 1

    @app.resource("own://thing")
    def thing() -> str:
        return "own thing"

    @app.prompt
    def hello() -> str:
        return "hello"

    async with Client(app) as client:
        assert {"own", "a:echo"} <= {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("own", {"x": 1})).data == 2
        assert text(await client.call_tool("a:echo", {}))["tool"] == "echo"
        assert (await client.read_resource("own://thing"))[0].text == "own thing"  # type: ignore[union-attr]
        assert (await client.get_prompt("hello")).messages
        assert (await client.read_resource("note://a//a"))[0].text == "lean reads note:///a"  # type: ignore[union-attr]


async def test_transforms_apply_to_the_children() -> None:
    app = build_aggregator(config(a=offering()))
    app.add_transform(Namespace("x"))
    async with Client(app) as client:
        await until_async(client, "x_a:echo")
        assert text(await client.call_tool("x_a:echo", {"y": 2}))["arguments"] == {"y": 2}
        assert text(await client.call_tool("x_a:echo", {}))["server"] == "lean"


async def test_each_source_of_a_config_and_of_settings_is_accepted(tmp_path: Any) -> None:
    document = config(a=lean())
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(document))
    model = load_config(document)
    assert isinstance(model, McpConfig)
    settings = AggregatorSettings(separator="__", name="mine")
    for source in (path, str(path), document, model):
        app = build_aggregator(source, settings=settings, server_version="9.9")
        assert (app.name, app.version, app.settings.separator) == ("mine", "9.9", "__")
        async with connected_and_entered(app) as client:
            assert (await client.names())[0] == "a__echo"
            assert client.introduction["serverInfo"] == {"name": "mine", "version": "9.9"}


@asynccontextmanager
async def connected_and_entered(app: Any) -> Any:
    async with app, connected(app) as client:
        yield client


async def test_nothing_is_started_while_the_config_has_a_problem(tmp_path: Any) -> None:
    record = tmp_path / "pids"
    with pytest.raises(ConfigError):
        build_aggregator(config(good=lean(record=str(record)), bad={"command": ""}))
    assert not record.exists()


async def test_an_app_that_does_not_run_says_so() -> None:
    app = build_aggregator(config(a=lean()))
    assert app.health() == {}
    with pytest.raises(RuntimeError, match="the aggregator is not running"):
        await app._directory.ready()


async def test_a_strict_start_that_failed_answers_embedded_clients_with_the_reasons() -> None:
    app = build_aggregator(config(missing={"command": "no-such-command"}))
    async with app._lifespan_manager(), connected(app) as client:
        error = await client.error("tools/list")
    assert error["code"] == -32603
    assert "the aggregator did not start: server 'missing': command not found" in error["message"]


async def test_an_empty_config_is_an_empty_server() -> None:
    async with build_aggregator({"mcpServers": {}}) as app, connected(app) as client:
        assert await client.names() == []
        assert "none is configured" in client.introduction["instructions"]
