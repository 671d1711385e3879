"""What a hub serves over HTTP: groups, the JSON face, and how it is."""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import StaticTokenVerifier
from support.harness import SLOW_RETRIES, config, lean, timed, until
from support.memory import build_aggregator
from support.serving import browser, served

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.auth.claims import claim_of

GROUPS = {
    "web": {"name": "Web", "description": "Pages.", "servers": ["fetch"], "tools": ["pid", "params"]},
    "both": {"servers": ["fetch", "files"]},
}


def hub(**options: Any) -> Aggregator:
    return build_aggregator(config(fetch=lean(), files=lean()), groups=GROUPS, **options)


async def test_each_group_has_an_mcp_endpoint_of_its_own() -> None:
    app = hub()
    async with served(app) as front:
        for mode in ("legacy", "auto"):
            async with Client(front.url_of("web"), mode=mode) as client:
                assert {tool.name for tool in await client.list_tools()} == {"fetch:pid", "fetch:params"}
                assert await client.call_tool("fetch:pid")
            async with Client(front.url, mode=mode) as client:
                assert {"fetch:pid", "files:pid"} <= {tool.name for tool in await client.list_tools()}


@pytest.mark.parametrize("path", ["/groups/none/mcp", "/groups/none/mcp/tools/list", "/groups/none/"])
async def test_a_group_that_is_not_there_is_not_found(path: str) -> None:
    async with browser(hub()) as http:
        assert (await http.post(path, json={})).status_code == 404


async def test_the_json_face_answers_with_the_result_of_the_method() -> None:
    async with browser(hub()) as http:
        listed = (await http.post("/groups/web/mcp/tools/list")).json()
        assert {tool["name"] for tool in listed["tools"]} == {"fetch:pid", "fetch:params"}
        called = await http.post("/mcp/tools/call", json={"name": "files:echo", "arguments": {"x": 1}})
        assert called.status_code == 200
        assert '"x": 1' in called.json()["content"][0]["text"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/mcp/tools/call", {"name": "fetch:none", "arguments": {}}, 400, -32602),
        ("/groups/web/mcp/tools/call", {"name": "files:pid", "arguments": {}}, 400, -32602),
        ("/mcp/tools/call", {}, 400, -32602),
        ("/mcp/tools/call", [], 400, -32602),
        ("/mcp/no/method", {}, 404, -32601),
        ("/mcp/resources/subscribe", {"uri": "x://y"}, 404, -32601),
        ("/mcp/tools/call", {"name": "fetch:error", "arguments": {"code": -31999, "message": "mine"}}, 500, -31999),
    ],
)
async def test_the_json_face_answers_with_the_error_that_a_client_would_get(
    path: str, body: Any, status: int, code: int
) -> None:
    async with browser(hub()) as http:
        answer = await http.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_what_is_no_json_is_a_parse_error() -> None:
    async with browser(hub()) as http:
        answer = await http.post("/mcp/tools/list", content=b"{")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32700)


async def test_a_tool_may_be_named_alone_where_that_is_enough() -> None:
    async with browser(hub()) as http:
        assert (await http.post("/groups/web/mcp/tools/call", json={"name": "pid"})).status_code == 200
        answer = await http.post("/groups/both/mcp/tools/call", json={"name": "pid"})
        assert answer.status_code == 400
        assert "fetch:pid, files:pid" in answer.json()["error"]["message"]


async def test_a_tool_is_not_named_alone_on_the_mcp_wire() -> None:
    async with served(hub()) as front, Client(front.url_of("web")) as client:
        with pytest.raises(Exception, match="must be prefixed"):
            await client.call_tool("pid")


async def test_python_programs_name_tools_alone_too() -> None:
    async with hub() as app:
        assert (await app.call_tool("pid", group="web")).content
        assert {tool.name for tool in await app.list_tools(group="web")} == {"fetch:pid", "fetch:params"}
        with pytest.raises(Exception, match="not unique"):
            await app.call_tool("pid")


async def test_health_ready_and_status_tell_how_it_is() -> None:
    app = hub()
    async with browser(app) as http:
        assert (await http.get("/health")).json() == {"status": "alive"}
        async with app:
            ready = await http.get("/ready")
            assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
            servers = (await http.get("/status")).json()["servers"]
            assert {key: server["state"] for key, server in servers.items()} == {"fetch": "running", "files": "running"}


async def test_a_strict_hub_with_a_failed_server_is_not_ready() -> None:
    app = timed(hub(), SLOW_RETRIES)
    async with browser(app) as http, app:
        with pytest.raises(ToolError):
            await app.call_tool("fetch:leave", {"code": 1})
        await until(lambda: app.health()["fetch"].state == "failed")
        assert (await http.get("/ready")).status_code == 503


async def test_the_json_face_is_described() -> None:
    async with browser(hub()) as http:
        described = (await http.get("/openapi.json")).json()
        assert described["openapi"].startswith("3.")
        assert "/groups/{group_id}/mcp/tools/call" in described["paths"]


def with_auth(**principals: list[str] | None) -> Aggregator:
    tokens = {name: {"client_id": name, "scopes": [], **claim_of(name, groups)} for name, groups in principals.items()}
    return hub(auth=StaticTokenVerifier(tokens))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/status"),
        ("GET", "/metrics"),
        ("GET", "/groups"),
        ("POST", "/mcp"),
        ("POST", "/mcp/tools/list"),
        ("POST", "/groups/web/mcp"),
        ("POST", "/groups/web/mcp/tools/list"),
    ],
)
async def test_nothing_but_the_probes_is_open_without_credentials(method: str, path: str) -> None:
    async with browser(with_auth(me=None)) as http:
        assert (await http.request(method, path, json={})).status_code == 401
        assert (await http.get("/health")).status_code == 200


async def test_who_may_not_use_a_group_is_told_that_there_is_none() -> None:
    async with browser(with_auth(guest=["web"]), authorization="Bearer guest") as http:
        assert (await http.post("/groups/web/mcp/tools/list")).status_code == 200
        for path in ("/mcp/tools/list", "/groups/both/mcp/tools/list", "/groups/both/mcp", "/mcp"):
            answer = await http.post(path, json={})
            assert (answer.status_code, answer.text) == (404, "Not Found")
        assert [group["id"] for group in (await http.get("/groups")).json()] == ["web"]


async def test_a_session_of_somebody_else_is_not_found() -> None:
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "one", "version": "1"},
        },
    }
    accept = {"accept": "application/json, text/event-stream"}
    async with browser(with_auth(one=None, two=None)) as http:
        begun = await http.post("/mcp", json=initialize, headers={**accept, "authorization": "Bearer one"})
        session = {"mcp-session-id": begun.headers["mcp-session-id"], **accept}
        body = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        theirs = await http.post("/mcp", json=body, headers={**session, "authorization": "Bearer two"})
        assert theirs.status_code == 404
        mine = await http.post("/mcp", json=body, headers={**session, "authorization": "Bearer one"})
        assert mine.status_code == 200
