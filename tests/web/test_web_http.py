"""What a hub serves over HTTP: groups, the JSON API, and how it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import StaticTokenVerifier
from mcp_types import HEADER_MISMATCH
from support.harness import PATIENCE, SLOW_RETRIES, config, lean, timed, until
from support.memory import build_aggregator
from support.serving import browser, served
from support.wire import ELSEWHERE

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.auth.claims import claim_of
from fastmcp_aggregator.front.http.security import NOT_FOUND
from fastmcp_aggregator.library_internals import sdk_server_of

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


async def test_the_json_api_answers_with_the_result_of_the_method() -> None:
    async with browser(hub()) as http:
        listed = (await http.post("/groups/web/mcp/tools/list")).json()
        assert {tool["name"] for tool in listed["tools"]} == {"fetch:pid", "fetch:params"}
        called = await http.post("/mcp/tools/call", json={"name": "files:echo", "arguments": {"x": 1}})
        assert called.status_code == 200
        assert '"x": 1' in called.json()["content"][0]["text"]


@pytest.mark.parametrize("name", ["args", "params", "input"])
async def test_what_is_meant_to_be_arguments_is_not_dropped_in_silence(name: str) -> None:
    async with browser(hub()) as http:
        answer = await http.post("/mcp/tools/call", json={"name": "files:echo", name: {"x": 1}})
        told = f"{name}: not a parameter of tools/call; did you mean `arguments`?"
        assert (answer.status_code, answer.json()["error"]) == (400, {"code": -32602, "message": told})
        both = await http.post("/mcp/tools/call", json={"name": "files:echo", "arguments": {"x": 1}, name: {}})
        assert both.status_code == 200


async def test_what_a_modern_call_says_in_headers_is_checked_by_what_the_schema_says_of_headers() -> None:
    """Its arguments may cost anything to walk; see SEP-2243."""
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string", "x-mcp-header": "X"}, "y": {"anyOf": [{}] * 100}},
    }
    app = build_aggregator(config(a=lean(tool_extra={"inputSchema": schema}), b=lean()))
    async with served(app) as front:
        for name, x, headers, is_right in (
            ("a:echo", "eu", {"Mcp-Param-X": "eu"}, True),
            ("a__echo", "eu", {"Mcp-Param-X": "us"}, False),
            ("a:echo", "eu", {}, False),
            ("b:echo", "eu", {"Mcp-Param-X": "us"}, True),
        ):
            client = await front.connect(modern=True, headers=headers)
            response = await client.send("tools/call", {"name": name, "arguments": {"x": x, "y": 1}})
            assert ("result" in response) is is_right
            assert is_right or response["error"]["code"] == HEADER_MISMATCH
        assert sdk_server_of(app).get_tool_input_schema("b:echo") is None


@pytest.mark.parametrize(
    ("path", "body"),
    [("tools/list", {}), ("tools/call", {"name": "pid"}), ("tools/call", {"name": "missing:pid"})],
    ids=["list", "bare name", "name"],
)
async def test_a_strict_start_that_failed_is_told_with_its_reasons_and_with_details_to_this_machine_alone(
    path: str, body: dict[str, Any]
) -> None:
    failing = "the aggregator did not start: server 'missing': "
    async with browser(build_aggregator(config(missing={"command": "no-such-command"}))) as http:
        here = await http.post(f"/mcp/{path}", json=body)
        elsewhere = await http.post(f"/mcp/{path}", json=body, headers=ELSEWHERE)
    for answer in (here, elsewhere):
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, -32603)
        assert answer.json()["error"]["message"].startswith(failing)
    assert "no-such-command" in here.text
    assert "no-such-command" not in elsewhere.text


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
async def test_the_json_api_answers_with_the_error_that_a_client_would_get(
    path: str, body: Any, status: int, code: int
) -> None:
    async with browser(hub()) as http:
        answer = await http.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_call_has_a_request_id_and_a_trace_id_that_its_headers_tell(tmp_path: Path, fast_path: bool) -> None:
    audit = tmp_path / "audit.jsonl"
    app = build_aggregator(config(fetch=lean()), audit=str(audit), fast_path=fast_path)
    trace = "0af7651916cd43dd8448eb211c80319c"
    told = {"X-Request-Id": "mine-1", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    async with browser(app) as http:
        call = {"name": "fetch:pid", "arguments": {}}
        answers = [
            await http.post("/mcp/tools/call", json=call, headers=headers)
            for headers in (told, {}, {"X-Request-Id": 'a"b', "traceparent": "wrong"})
        ]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert ids[0] == "mine-1"
    assert len({*ids, 'a"b'}) == 4
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    found = [(each["request_id"], each.get("trace_id")) for each in entries]
    assert found == list(zip(ids, (trace, None, None), strict=True))


async def test_what_is_no_json_is_a_parse_error() -> None:
    async with browser(hub()) as http:
        answer = await http.post("/mcp/tools/list", content=b"{", headers={"Content-Type": "application/json"})
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


async def test_the_json_api_is_described() -> None:
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


async def test_a_slash_at_the_end_of_the_endpoint_leads_to_it() -> None:
    async with served(with_auth(guest=["web"])) as front:
        async with front.browser(authorization="Bearer guest") as http:
            for path in ("/groups/web/mcp", "/groups/both/mcp"):
                answer = await http.post(f"{path}/", json={})
                is_mine = path == "/groups/web/mcp"
                assert (answer.status_code, answer.headers.get("location")) == (
                    (307, "../mcp") if is_mine else (404, None)
                )
            assert (await http.post("/groups/web/mcp/", headers={"authorization": "Bearer no"})).status_code == 401
        url = f"{front.origin}/groups/web/mcp/"
        async with Client(StreamableHttpTransport(url, auth="guest")) as client:
            assert await client.list_tools()


async def test_a_request_for_another_host_or_of_another_page_is_told_what_an_operator_sets() -> None:
    async with browser(hub()) as http:
        answer = await http.get("/health", headers={"host": "hub.example.org"})
        assert (answer.status_code, "`allowed_hosts`" in answer.text) == (421, True)
        assert int(answer.headers["content-length"]) == len(answer.content)
        answer = await http.get("/health", headers={"origin": "https://evil.example"})
        assert (answer.status_code, "`cors_origins`" in answer.text) == (403, True)


async def test_who_may_not_use_a_group_is_told_that_there_is_none() -> None:
    async with browser(with_auth(guest=["web"]), authorization="Bearer guest") as http:
        assert (await http.post("/groups/web/mcp/tools/list")).status_code == 200
        for path in ("/mcp/tools/list", "/groups/both/mcp/tools/list", "/groups/both/mcp", "/mcp"):
            answer = await http.post(path, json={})
            assert (answer.status_code, answer.text) == (404, NOT_FOUND)
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


async def test_callers_take_turns_at_a_server_and_each_has_places_to_wait() -> None:
    tokens = {name: {"client_id": name, "scopes": list[str]()} for name in ("ann", "bob")}
    app = build_aggregator(
        config(a=lean()), auth=StaticTokenVerifier(tokens), max_concurrent_calls=1, max_waiting_requests=8, rate_limit=0
    )
    order: list[str] = []
    async with browser(app) as http:

        async def call(name: str, tool: str = "echo") -> httpx2.Response:
            headers = {"Authorization": f"Bearer {name}"}
            answer = await http.post("/mcp/tools/call", json={"name": f"a:{tool}"}, headers=headers)
            order.append(name)
            return answer

        first = asyncio.create_task(call("ann", "hold"))
        await until(lambda: app.health()["a"].in_flight == 1)
        anns = [asyncio.create_task(call("ann")) for _ in range(4)]
        await until(lambda: app.health()["a"].waiting == 4)
        assert "no more may wait" in (await call("ann")).text
        bobs = asyncio.create_task(call("bob"))
        await until(lambda: app.health()["a"].waiting == 5)
        order.clear()
        first.cancel()
        answers = await asyncio.gather(*anns, bobs)
    assert [answer.status_code for answer in answers] == [200] * 5
    assert order == ["ann", "bob", "ann", "ann", "ann"]


PATHS = [
    "/mcp/sse", "/groups/web/mcp/sse", "/mcp", "/mcp/", "/mcp/messages", "/mcp/tools/call", "/groups/web/mcp/ping",
    "/health", "/ready", "/status", "/metrics", "/groups", "/openapi.json", "/", "/dashboard/state", "/dashboard/names",
    "/dashboard/history", "/wake/fetch", "/restart/fetch", "/stop/fetch", "/stderr/fetch", "/keys", "/pins",
]  # fmt: skip


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "PATCH", "TRACE"])
async def test_other_methods_open_nothing_and_do_nothing(method: str, tmp_path: Path) -> None:
    app = hub(audit=str(tmp_path / "audit.jsonl"), metrics=True, dashboard=True)
    async with browser(app) as http, asyncio.timeout(PATIENCE):
        for path in PATHS:
            found = await http.request(method, path, json=None if method == "HEAD" else {})
            if method == "HEAD" and found.status_code not in (404, 405):
                got = await http.get(path)
                assert found.status_code == got.status_code, path
                assert found.content == b""
            else:
                assert found.status_code in (404, 405), path
            assert not path.endswith("/sse") or (found.status_code, found.headers["allow"]) == (405, "GET"), path
        assert {status.state for status in app.health().values()} == {"running"}


async def test_a_head_waits_for_nothing_new() -> None:
    app = hub(dashboard=True)
    async with browser(app) as http, asyncio.timeout(PATIENCE):
        await until(lambda: {status.state for status in app.health().values()} == {"running"})
        etag = (await http.get("/dashboard/state")).headers["etag"]
        waits = {"prefer": "wait=9999", "if-none-match": etag}
        assert (await http.head("/dashboard/state", headers=waits)).status_code == 304


async def test_a_head_opens_no_session_of_fastmcps_sse_app() -> None:
    async with served(hub().http_app(transport="sse")) as front, asyncio.timeout(PATIENCE), front.browser() as http:
        found = await http.head("/mcp")
        assert (found.status_code, found.headers["allow"]) == (405, "GET")
