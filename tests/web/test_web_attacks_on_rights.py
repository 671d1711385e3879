"""Attacks of those who have some rights, on what others may: roles, acts of operators, the page, its history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.credentials import Credentials, bearer
from support.harness import PATIENCE, config, lean, until
from support.keyed_hub import KeyedHub, keyed_hub
from support.memory import scripts_of

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import read_keys, write_keys

GROUPS = {"red": {"servers": ["a"]}, "blue": {"servers": ["b"]}, "search": {"servers": ["b"], "tool_search": True}}
HOLDERS: dict[str, tuple[set[str], list[str] | None]] = {
    "ann": ({"call"}, ["red"]),
    "bob": ({"call"}, ["blue", "search"]),
    "watch": ({"observe"}, None),
    "meter": ({"metrics"}, None),
    "chief": ({"operate"}, None),
    "boss": ({"call", "operate"}, None),
}
OPERATORS = [
    ("POST", "restart/a"),
    ("POST", "stop/a"),
    ("GET", "stderr/a"),
    ("POST", "withdraw/a"),
    ("POST", "reinstate/a"),
    ("GET", "keys"),
    ("GET", "pins"),
    ("POST", "pins/a"),
]


@asynccontextmanager
async def hub(folder: Path, **settings: Any) -> AsyncIterator[KeyedHub]:
    groups = {name: groups for name, (_, groups) in HOLDERS.items()}
    credentials = Credentials(folder, groups, {name: roles for name, (roles, _) in HOLDERS.items()})
    credentials.settings["jwt_roles_claim"] = "roles"
    chosen = {"metrics": True, "rate_limit": 0, "groups": GROUPS, **settings}
    async with keyed_hub(folder, credentials, config(a=lean(name="a"), b=lean(name="b")), **chosen) as here:
        yield here


# Roles.


@pytest.mark.parametrize("who", ["ann", "bob", "watch", "meter"])
async def test_no_address_leads_to_what_operators_do(tmp_path: Path, who: str) -> None:
    async with hub(tmp_path) as here:
        for method, path in OPERATORS:
            for way in (
                "/{}",
                "/.//{}",
                "/{}/",
                "/groups/red/{}",
                "/mcp/{}",
                "/dashboard/{}",
                "/./{}",
                "/x/../{}",
                "/%2e/{}",
            ):
                answer = await here.ask(who, method, way.format(path), {"tool": "echo", "offer": "x"})
                assert answer.status_code in (307, 403, 404, 405), (way, path)
                assert "differences" not in answer.text
                assert "last_used" not in answer.text
            for other in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
                answer = await here.ask(who, other, f"/{path}", None, **{"x-http-method-override": method})
                assert answer.status_code in (403, 405), (other, path)
        assert {status.state for status in here.app.health().values()} == {"running"}
        assert all(len(script.lives) == 1 for script in scripts_of(here.app).values())


@pytest.mark.parametrize(
    "roles",
    [
        "Operate",
        "operate,",
        "OPERATE",
        "call,operate",
        ["Operate", "operate "],
        [["operate"]],
        {"operate": True},
        [{"name": "operate"}],
        "operate\0",
        "оperate",
        None,
        True,
        1,
        "*",
        ["all", "admin", "root"],
    ],
)
async def test_a_claim_that_only_looks_like_a_role_gives_none(tmp_path: Path, roles: Any) -> None:
    async with hub(tmp_path) as here:
        token = bearer(roles=roles, groups=["red"])
        for path in ("/keys", "/pins", "/stderr/a"):
            assert (await here.ask(token, "GET", path)).status_code == 403
        assert (await here.ask(token, "GET", "/metrics")).status_code == 403
        assert "shares" not in (await here.ask(token, "GET", "/status")).json()


async def test_who_may_only_look_or_operate_calls_nothing_at_any_entrance(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        for who in ("watch", "meter", "chief"):
            for base in ("/mcp", "/groups/red/mcp", "/groups/default/mcp"):
                for path in ("", "/tools/call", "/tools/list", "/sse", "/messages?session_id=x", "/resources/read"):
                    for method in ("GET", "POST", "DELETE"):
                        answer = await here.ask(who, method, base + path, {"name": "a:echo"})
                        assert answer.status_code in (403, 405), (who, method, base, path)
        assert [
            message for message in scripts_of(here.app)["a"].life.received if message.get("method") == "tools/call"
        ] == []


async def test_only_whose_server_it_is_wakes_it_and_who_tries_is_recorded(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        for who in ("bob", "watch", "meter"):
            assert (await here.ask(who, "POST", "/wake/a")).status_code == 404
        lines = await here.audited(3)
        assert [(line["event"], line["principal"]) for line in lines] == [
            ("denied", "key:bob"),
            ("denied", "key:watch"),
            ("denied", "key:meter"),
        ]


async def test_a_server_that_an_operator_has_stopped_is_started_by_nobody_else(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        assert (await here.ask("chief", "POST", "/stop/a")).status_code == 202
        await until(lambda: here.app.health()["a"].state == "stopped")
        for _ in range(3):
            await here.ask("ann", "POST", "/wake/a")
            assert (await here.call("ann", "red", "a:echo")).status_code != 200
            await here.ask("ann", "POST", "/groups/red/mcp/tools/list", {})
        assert here.app.health()["a"].state == "stopped"
        assert len(scripts_of(here.app)["a"].lives) == 1


async def test_to_wake_is_limited_like_a_call(tmp_path: Path) -> None:
    async with hub(tmp_path, rate_limit=1, rate_burst=5) as here:
        statuses = [(await here.ask("ann", "POST", "/wake/a")).status_code for _ in range(20)]
        assert statuses[:5] == [202] * 5
        assert set(statuses[5:]) == {429}


# What operators have done.


async def test_a_tool_that_is_out_of_service_is_reached_in_no_way(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        assert (await here.call("bob", "blue", "b:pid")).status_code == 200
        assert (await here.ask("chief", "POST", "/withdraw/b", {"tool": "pid"})).status_code == 200
        for group in ("blue", "search"):
            for name in ("b:pid", "b__pid", "b.pid", "b_pid", "pid", "B:pid", "b:pid ", "b: pid", "b:%70id", "b:b:pid"):
                answer = await here.call("bob", group, name)
                assert answer.status_code != 200, (group, name)
            listed = await here.ask("bob", "POST", f"/groups/{group}/mcp/tools/list", {})
            assert "pid" not in [tool["name"].rpartition(":")[2] for tool in listed.json()["tools"]]
        found = await here.call("bob", "search", "search_tools", query="pid")
        assert "b:pid" not in found.text
        by_search = await here.call("bob", "search", "call_tool", name="b:pid", arguments={})
        assert by_search.status_code != 200 or by_search.json().get("isError"), by_search.text
        called = [
            each["params"]["name"]
            for each in scripts_of(here.app)["b"].life.received
            if each.get("method") == "tools/call"
        ]
        assert called == ["pid"]


async def test_a_tool_out_of_service_stays_so_when_its_server_restarts_or_lists_again(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        await here.ask("chief", "POST", "/withdraw/b", {"tool": "pid"})
        await here.call("bob", "blue", "b:remove_tool", name="pid")
        await here.call("bob", "blue", "b:add_tool", name="pid")
        assert (await here.call("bob", "blue", "b:pid")).status_code != 200
        await here.ask("chief", "POST", "/restart/b")
        await until(lambda: len(scripts_of(here.app)["b"].lives) == 2 and here.app.health()["b"].state == "running")
        assert (await here.call("bob", "blue", "b:pid")).status_code != 200


# What is shown of others.

PLANTED = "planted-4711"


async def test_of_calls_nobody_sees_arguments_results_addresses_or_reasons(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        await here.call("ann", "red", "a:echo", text=PLANTED)
        await here.call("ann", "red", "a:error", code=-32001, message=PLANTED, data={PLANTED: PLANTED})
        await here.call("ann", "red", f"a:{PLANTED}-unknown")
        await here.ask("ann", "POST", "/groups/red/mcp/resources/read", {"uri": f"note://a/{PLANTED}?token={PLANTED}"})
        await here.ask("ann", "POST", "/groups/red/mcp/prompts/get", {"name": "a:x", "arguments": {"q": PLANTED}})
        await here.ask("ann", "POST", f"/groups/red/mcp/tools/call?key={PLANTED}", {"name": "a:echo"})
        for who in ("watch", "chief", "meter", "bob"):
            for path in (
                "/dashboard/state",
                "/dashboard/history",
                "/dashboard/names",
                "/status",
                "/metrics",
                "/groups",
            ):
                assert PLANTED not in (await here.ask(who, "GET", path)).text, (who, path)
        assert PLANTED not in json.dumps((await here.ask("watch", "GET", "/dashboard/state")).json()["calls"])


async def test_of_others_calls_callers_see_nothing(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        await here.call("ann", "red", "a:echo")
        await here.call("boss", "red", "a:echo")
        token = bearer(sub="key:ann", groups=["red"])
        same = bearer(sub="ann", groups=["red"])
        for who in ("bob", "meter", token, same):
            assert (await here.ask(who, "GET", "/dashboard/state")).json()["calls"] == []
            assert (await here.ask(who, "GET", "/dashboard/history")).json() == {}
        (own,) = (await here.ask("ann", "GET", "/dashboard/state")).json()["calls"]
        assert own["principal"] == "key:ann"


async def test_one_key_of_a_name_does_not_lend_its_rights_to_another(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        await here.call("ann", "red", "a:echo")
        key, entry = new_key("ann", ["blue"], None, {"call"})
        other = {"authorization": f"Bearer {key}"}
        write_keys(tmp_path / "keys.json", [*read_keys(tmp_path / "keys.json"), entry])
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        accept = {"accept": "application/json, text/event-stream"}
        initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        opened = await here.ask("ann", "POST", "/groups/red/mcp", initialize, **accept)
        session = {"mcp-session-id": opened.headers["mcp-session-id"], **accept}
        ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await here.ask("ann", "POST", "/groups/red/mcp", ask, **session)).status_code == 200
        for group in ("red", "blue"):
            assert (await here.ask(other, "POST", f"/groups/{group}/mcp", ask, **session)).status_code == 404, group
        assert (await here.ask(other, "GET", "/dashboard/state")).json()["calls"] == []


async def test_names_that_nobody_has_leave_no_trace_in_the_metrics(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        await here.call("ann", "red", "a:echo")
        before = len((await here.ask("meter", "GET", "/metrics")).content)
        for number in range(60):
            await here.call("ann", "red", f"a:none{number}")
            await here.ask("ann", "POST", f"/groups/red/mcp/none{number}/list", {})
            await here.ask("ann", "POST", f"/groups/g{number}/mcp/tools/list", {})
        grown = len((await here.ask("meter", "GET", "/metrics")).content) - before
        assert grown < 2000, grown


async def test_one_who_waits_for_news_everywhere_leaves_others_their_page(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        etag = (await here.ask("ann", "GET", "/dashboard/state")).headers["etag"]
        headers = {"if-none-match": etag, "prefer": "wait=30"}
        waiting = [asyncio.create_task(here.ask("ann", "GET", "/dashboard/state", **headers)) for _ in range(250)]
        try:
            await until(lambda: any(task.done() for task in waiting))  # no more of hers wait
            own = (await here.ask("bob", "GET", "/dashboard/state")).headers["etag"]
            his = asyncio.create_task(
                here.ask("bob", "GET", "/dashboard/state", **{"if-none-match": own, "prefer": "wait=30"})
            )
            for _ in range(3):  # one that is not let wait is answered as soon as these
                assert (await here.ask("bob", "GET", "/dashboard/state")).status_code == 200
            assert not his.done(), "his browser is not let wait"
            his.cancel()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("if-none-match", '"' + "x" * 8000 + '"'),
        ("if-none-match", ",".join(["W/"] * 4000)),
        ("prefer", "wait=99999999999999999999"),
        ("prefer", "wait=-1"),
        ("prefer", "wait=1e9"),
        ("prefer", "wait=0, wait=0"),
    ],
)
async def test_odd_headers_of_the_page_are_headers_of_nothing(tmp_path: Path, name: str, value: str) -> None:
    async with hub(tmp_path) as here:
        async with asyncio.timeout(PATIENCE):
            answer = await here.ask("ann", "GET", "/dashboard/state", **{name: value})
        assert answer.status_code == 200


async def test_what_a_request_calls_itself_splits_no_line_and_no_header(tmp_path: Path) -> None:
    async with hub(tmp_path) as here:
        for name in ("x-request-id", "traceparent", "tracestate", "user-agent"):
            for value in (
                "a" * 7000,
                'x"}\\n{"event":"forged',
                "\x1b[31mred",
                "x\ty",
                "00-" + "0" * 32 + "-" + "0" * 16 + "-01",
            ):
                answer = await here.ask(
                    "ann", "POST", "/groups/red/mcp/tools/call", {"name": "a:echo"}, **{name: value}
                )
                assert answer.status_code == 200
                assert len(answer.headers.get("x-request-id", "")) < 200
                assert value not in answer.headers.get("x-request-id", "") or len(value) < 100
        lines = await here.audited(20)
        assert {line["event"] for line in lines} == {"call"}
        assert max(len(json.dumps(line)) for line in lines) < 2000
