"""Whatever reaches a server, and each refusal, has a line in the audit log; and what costs something is limited."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.credentials import Credentials, bearer
from support.harness import config, talking
from support.keyed_hub import KeyedHub, keyed_hub
from support.tokens import ISSUER
from support.wire_http import HttpClient

from fastmcp_aggregator.web.dashboard import assets

GROUPS = {"red": {"servers": ["a"]}, "blue": {"servers": ["b"]}, "both": {"servers": ["a", "b"]}}
SETTINGS: dict[str, Any] = {
    "metrics": True,
    "tool_search": True,
    "prompts_as_tools": True,
    "resources_as_tools": True,
    "validate_arguments": True,
}
LISTEN = {"notifications": {"resourceSubscriptions": ["note://a//a"]}}


@asynccontextmanager
async def hub(folder: Path, **settings: Any) -> AsyncIterator[KeyedHub]:
    """A hub with two servers in three groups, a key for each, and tokens."""
    credentials = Credentials(folder, {"red": ["red"], "blue": ["blue"], "both": ["both"], "all": None})
    chosen = {**SETTINGS, "groups": GROUPS, **settings}
    async with keyed_hub(folder, credentials, config(a=talking(), b=talking()), **chosen) as opened:
        yield opened


# What reaches a server, or costs something.


async def listens(client: HttpClient) -> Any:
    """Open a stream; what it is granted."""
    client.begin("subscriptions/listen", LISTEN)
    return (await client.heard("notifications/subscriptions/acknowledged"))["params"]["notifications"]


def asks(method: str, **params: Any) -> Callable[[HttpClient], Awaitable[Any]]:
    return lambda client: client.result(method, params)


def notifies(method: str) -> Callable[[HttpClient], Awaitable[Any]]:
    async def notify(client: HttpClient) -> None:
        client.write({"method": method})
        await client.posted()

    return notify


REACHES = {
    "a tool": (asks("tools/call", name="a:open", arguments={"gate": "x"}), {"tool": "open"}),
    "a resource": (asks("resources/read", uri="note://a//a"), {"uri": "note:///a"}),
    "a prompt": (asks("prompts/get", name="a:play", arguments={}), {"prompt": "play"}),
    "a completion": (
        asks("completion/complete", ref={"type": "ref/prompt", "name": "a:play"}, argument={"name": "x", "value": ""}),
        {"prompt": "play"},
    ),
    "a subscription": (asks("resources/subscribe", uri="note://a//a"), {"uri": "note:///a"}),
    "the end of one": (asks("resources/unsubscribe", uri="note://a//a"), {"uri": "note:///a"}),
    "a log level": (asks("logging/setLevel", level="info"), {"method": "logging/setLevel"}),
    "changed roots": (
        notifies("notifications/roots/list_changed"),
        {"method": "notifications/roots/list_changed"},
    ),
    "a search": (asks("tools/call", name="search_tools", arguments={"query": "open"}), {"tool": "search_tools"}),
    "a tool by way of another": (
        asks("tools/call", name="call_tool", arguments={"name": "a:open", "arguments": {"gate": "x"}}),
        {"tool": "open", "server": "a"},
    ),
    "a prompt as a tool": (
        asks("tools/call", name="get_prompt", arguments={"name": "a:play"}),
        {"prompt": "play", "server": "a"},
    ),
    "a resource as a tool": (
        asks("tools/call", name="read_resource", arguments={"uri": "note://a//a"}),
        {"uri": "note:///a", "server": "a"},
    ),
    "a resource as a tool by way of another": (
        asks("tools/call", name="call_tool", arguments={"name": "read_resource", "arguments": {"uri": "note://a//a"}}),
        {"uri": "note:///a", "server": "a"},
    ),
    "a list of prompts as a tool": (asks("tools/call", name="list_prompts", arguments={}), {"tool": "list_prompts"}),
}


@pytest.mark.parametrize("case", REACHES)
async def test_what_reaches_a_server_or_costs_something_has_a_line_and_takes_a_token(case: str, tmp_path: Path) -> None:
    act, what = REACHES[case]
    async with hub(tmp_path, rate_limit=0.001, rate_burst=2) as opened:
        client = await opened.connect("red")
        await act(client)
        (line,) = await opened.audited(1)
        usual = {"principal": "key:red", "group": "red", "event": "call", "outcome": "ok", **what}
        assert {name: line.get(name) for name in usual} == usual
        assert line["id"]
        for _ in range(2):
            with suppress(AssertionError):
                await act(client)
        assert [line["outcome"] for line in await opened.audited(3)] == ["ok", "ok", "denied"]


async def test_a_listening_stream_and_each_address_of_it_count(tmp_path: Path) -> None:
    async with hub(tmp_path, rate_limit=0.001, rate_burst=3) as opened:
        client = await opened.connect("red", modern=True)
        assert (await listens(client))["resourceSubscriptions"]
        first, second = await opened.audited(2)
        assert (first["method"], first["outcome"], first.get("uri")) == ("subscriptions/listen", "ok", None)
        assert (second["server"], second["uri"], second["outcome"]) == ("a", "note:///a", "ok")
        other = await opened.connect("red", modern=True)
        assert not (await listens(other)).get("resourceSubscriptions")
        assert [line["outcome"] for line in await opened.audited(4)] == ["ok", "ok", "ok", "denied"]


async def test_calls_of_the_dashboard_and_of_the_json_api_count_like_all_others(tmp_path: Path) -> None:
    async with hub(tmp_path, rate_limit=0.001, rate_burst=2) as opened:
        assert b"tools/call" in b"".join(path.read_bytes() for path in Path(assets.__file__).parent.rglob("*.js"))
        for status in (200, 200, 429):
            body = {"name": "a:open", "arguments": {"gate": "x"}}
            assert (await opened.ask("red", "POST", "/groups/red/mcp/tools/call", body)).status_code == status
        lines = await opened.audited(3)
        assert [(line["principal"], line["tool"], line["outcome"]) for line in lines] == [
            ("key:red", "open", "ok"),
            ("key:red", "open", "ok"),
            ("key:red", "open", "denied"),
        ]


# What is refused.


def posts(path: str, key: str, body: Any = None, method: str = "POST") -> Callable[[KeyedHub], Awaitable[Any]]:
    return lambda opened: opened.ask(key, method, path, body)


def presents(headers: dict[str, str], method: str = "POST", path: str = "/mcp/tools/list") -> Callable[[KeyedHub], Any]:
    return lambda opened: opened.ask(headers, method, path, {})


def errs(method: str, **params: Any) -> Callable[[KeyedHub], Awaitable[Any]]:
    async def act(opened: KeyedHub) -> None:
        await (await opened.connect("red")).error(method, params)

    return act


def fails(tool: str, **arguments: Any) -> Callable[[KeyedHub], Awaitable[Any]]:
    async def act(opened: KeyedHub) -> None:
        params = {"name": tool, "arguments": arguments}
        assert (await (await opened.connect("red")).result("tools/call", params))["isError"]

    return act


def steals(method: str) -> Callable[[KeyedHub], Awaitable[Any]]:
    async def act(opened: KeyedHub) -> None:
        session = (await opened.connect("both"))._session
        accept = {"accept": "application/json, text/event-stream"}
        for thief in (opened.credentials.of("all"), bearer(sub="both", groups=["both"])):
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            answer = await opened.ask({**thief, **session, **accept}, method, "/groups/both/mcp", ping)
            assert answer.status_code == 404

    return act


async def steals_a_stream(opened: KeyedHub) -> None:
    client = await opened.front.connect_sse("both", headers=opened.credentials.of("both"))
    await opened.ask("all", "POST", client.endpoint, {})


async def listens_elsewhere(opened: KeyedHub) -> None:
    client = await opened.connect("red", modern=True)
    client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://b//a"]}})
    await client.heard("notifications/subscriptions/acknowledged")


ANONYMOUS = {"principal": "anonymous"}
OF_RED = {"principal": "key:red", "group": "red"}
REFUSALS: dict[str, tuple[Callable[[KeyedHub], Awaitable[Any]], list[dict[str, Any]]]] = {
    "no credentials": (presents({}), [{**ANONYMOUS, "event": "authentication_failed"}]),
    "an unknown key": (presents({"x-api-key": "fma_0_0"}), [{**ANONYMOUS, "event": "authentication_failed"}]),
    "a token for another": (presents(bearer(aud="another")), [{**ANONYMOUS, "event": "authentication_failed"}]),
    "a token without an end": (presents(bearer(exp=None)), [{**ANONYMOUS, "event": "authentication_failed"}]),
    "two credentials": (
        presents({"x-api-key": "fma_0_0", **bearer()}),
        [{**ANONYMOUS, "event": "authentication_failed"}],
    ),
    "another Host": (presents({"host": "evil.example.com"}), [{**ANONYMOUS, "event": "denied"}]),
    "another Origin": (presents({"origin": "https://evil.example.com"}), [{**ANONYMOUS, "event": "denied"}]),
    "another group": (posts("/groups/blue/mcp/tools/list", "red"), [{**OF_RED, "group": "blue"}]),
    "the group default": (posts("/mcp/tools/list", "red"), [{**OF_RED, "group": "default"}]),
    "a group of a token": (
        presents(bearer(), path="/groups/blue/mcp/tools/list"),
        [{"principal": f"jwt:{ISSUER}#ann", "group": "blue"}],
    ),
    "a group without a claim": (
        presents(bearer(groups=None), path="/groups/red/mcp/tools/list"),
        [{"principal": f"jwt:{ISSUER}#ann", "group": "red"}],
    ),
    "metrics": (posts("/metrics", "red", method="GET"), [{"principal": "key:red", "path": "/metrics"}]),
    "a tool elsewhere": (errs("tools/call", name="b:open"), [{**OF_RED, "tool": "b:open"}]),
    "a prompt elsewhere": (errs("prompts/get", name="b:play"), [{**OF_RED, "prompt": "b:play"}]),
    "a resource elsewhere": (errs("resources/read", uri="note://b//a"), [{**OF_RED, "uri": "note://b//a"}]),
    "a subscription elsewhere": (errs("resources/subscribe", uri="note://b//a"), [{**OF_RED, "uri": "note://b//a"}]),
    "a listening stream elsewhere": (listens_elsewhere, [{**OF_RED, "uri": "note://b//a"}]),
    "a completion elsewhere": (
        errs("completion/complete", ref={"type": "ref/prompt", "name": "b:play"}, argument={"name": "x", "value": ""}),
        [{**OF_RED, "prompt": "b:play"}],
    ),
    "a template elsewhere": (
        errs("completion/complete", ref={"type": "ref/resource", "uri": "note://b//{x}"}, argument={}),
        [{**OF_RED, "uri": "note://b//{x}"}],
    ),
    "a tool elsewhere on the JSON API": (
        posts("/groups/red/mcp/tools/call", "red", {"name": "b:open"}),
        [{**OF_RED, "tool": "b:open"}],
    ),
    "a tool elsewhere by way of another": (fails("call_tool", name="b:open"), [{**OF_RED, "tool": "b:open"}]),
    "a prompt elsewhere as a tool": (fails("get_prompt", name="b:play"), [{**OF_RED, "prompt": "b:play"}]),
    "a resource elsewhere as a tool": (fails("read_resource", uri="note://b//a"), [{**OF_RED, "uri": "note://b//a"}]),
    "a prompt elsewhere by way of two": (
        fails("call_tool", name="get_prompt", arguments={"name": "b:play"}),
        [{**OF_RED, "prompt": "b:play"}],
    ),
    "a resource elsewhere by way of two": (
        fails("call_tool", name="read_resource", arguments={"uri": "note://b//a"}),
        [{**OF_RED, "uri": "note://b//a"}],
    ),
    "arguments": (
        errs("tools/call", name="a:open", arguments={"gate": json.loads("[" * 101 + "]" * 101)}),
        [{**OF_RED, "tool": "open", "event": "call"}],
    ),
    "the session of another": (
        steals("POST"),
        [
            {"principal": "key:all", "path": "/groups/both/mcp"},
            {"principal": f"jwt:{ISSUER}#both", "path": "/groups/both/mcp"},
        ],
    ),
    "the stream of another": (steals("GET"), [{"principal": "key:all"}, {"principal": f"jwt:{ISSUER}#both"}]),
    "the end of another's session": (steals("DELETE"), [{"principal": "key:all"}, {"principal": f"jwt:{ISSUER}#both"}]),
    "the SSE session of another": (steals_a_stream, [{"principal": "key:all", "group": "both"}]),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_what_is_refused_has_one_line_that_says_who_what_and_why(case: str, tmp_path: Path) -> None:
    act, expected = REFUSALS[case]
    async with hub(tmp_path) as opened:
        await act(opened)
        lines = await opened.audited(len(expected))
        await asyncio.sleep(0)
        refused = [line for line in lines if line["outcome"] == "denied"]
        shown = [{name: line.get(name) for name in fields} for line, fields in zip(refused, expected, strict=True)]
        assert shown == expected
        assert all(line["reason"] and line["id"] for line in refused)
        assert len({line["id"] for line in lines}) == len(lines)


async def test_a_held_call_is_denied_to_others_and_that_is_recorded(tmp_path: Path) -> None:
    script = [{"ask": {"x": {"method": "roots/list"}}}]
    async with hub(tmp_path) as opened:
        owner, thief = [
            await opened.connect(name, modern=True, group="both", capabilities={"roots": {}})
            for name in ("both", "all")
        ]
        params = {"name": "a:play", "arguments": {"script": script}}
        held = await owner.result("tools/call", params)
        answers = {"inputResponses": {name: {"roots": []} for name in held["inputRequests"]}}
        state = {"requestState": held["requestState"]}
        assert (await thief.error("tools/call", {**params, **answers, **state}))["code"] == -32602
        assert not (await owner.result("tools/call", {**params, **answers, **state})).get("isError")
        lines = await opened.audited(3)
        assert [(line["principal"], line["outcome"]) for line in lines] == [
            ("key:both", "input_required"),
            ("key:all", "denied"),
            ("key:both", "ok"),
        ]


async def test_a_key_and_a_token_of_one_name_are_two_callers(tmp_path: Path) -> None:
    async with hub(tmp_path, rate_limit=0.001, rate_burst=1, callers={"red": {"rate_burst": 2}}) as opened:
        body = {"name": "a:open", "arguments": {"gate": "x"}}
        statuses = []
        for headers in (bearer(sub="red"), bearer(sub="red"), *["red"] * 3):
            statuses.append((await opened.ask(headers, "POST", "/groups/red/mcp/tools/call", body)).status_code)
        assert statuses == [200, 429, 200, 200, 429]
        view = (await opened.ask("red", "GET", "/dashboard/state")).json()
        assert [call["principal"] for call in view["calls"]] == ["key:red"] * 3
