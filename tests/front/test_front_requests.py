"""What clients of both eras get from children of both eras, on the wire."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastmcp.server.middleware import Middleware
from support.harness import RawClient, config, connected, lean, talking, until
from support.memory import build_aggregator

from fastmcp_aggregator import Aggregator

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
RESOURCES = [
    {"uri": "note:///a", "name": "a", "mimeType": "text/plain", "x-own": 1},
    {"uri": "urn:isbn:1", "name": "b"},
]
TEMPLATES = [{"uriTemplate": "note:///{id}", "name": "notes"}]
PROMPTS = [{"name": "ask", "arguments": [{"name": "topic", "required": True}], "title": "Ask"}]
TOOL_EXTRA = {
    "title": "Own title",
    "annotations": {"readOnlyHint": True, "own": 1},
    "inputSchema": {"type": "object", "$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}},
    "_meta": {"own": {"deep": [1, None]}},
    "unknownField": {"kept": True},
}


def two_eras(**options: Any) -> dict[str, Any]:
    offers = {"resources": RESOURCES, "templates": TEMPLATES, "prompts": PROMPTS, "tool_extra": TOOL_EXTRA, **options}
    return config(old=lean(era="legacy", name="old", **offers), new=lean(era="modern", name="new", **offers))


@asynccontextmanager
async def serving(
    document: dict[str, Any], *, modern: bool = False, name: str = "test", **settings: Any
) -> AsyncIterator[tuple[Aggregator, RawClient]]:
    async with build_aggregator(document, **settings) as app, connected(app, modern=modern, name=name) as client:
        yield app, client


@ERAS
async def test_every_component_is_the_childs_own_but_for_its_name(modern: bool) -> None:
    async with serving(two_eras(), modern=modern) as (_, client):
        tools = (await client.result("tools/list"))["tools"]
        resources = (await client.result("resources/list"))["resources"]
        templates = (await client.result("resources/templates/list"))["resourceTemplates"]
        prompts = (await client.result("prompts/list"))["prompts"]

    assert tools[0] == {"name": "old:echo", "description": "The tool echo.", **TOOL_EXTRA}
    half = len(tools) // 2
    assert [t["name"].split(":")[0] for t in tools] == ["old"] * half + ["new"] * half
    assert resources[:2] == [RESOURCES[0] | {"uri": "note://old//a"}, RESOURCES[1] | {"uri": "urn://old:/isbn:1"}]
    assert templates[1] == TEMPLATES[0] | {"uriTemplate": "note://new//{id}"}
    assert prompts == [PROMPTS[0] | {"name": "old:ask"}, PROMPTS[0] | {"name": "new:ask"}]


@ERAS
@pytest.mark.parametrize("server", ["old", "new"])
async def test_everything_listed_can_be_used(modern: bool, server: str) -> None:
    async with serving(two_eras(), modern=modern) as (_, client):
        called = await client.call(f"{server}:echo", x=1, y=None, z={"deep": [1.5, "ü"]})
        read = await client.result("resources/read", {"uri": f"note://{server}//a"})
        from_template = await client.result("resources/read", {"uri": f"note://{server}//77"})
        opaque = await client.result("resources/read", {"uri": f"urn://{server}:/isbn:1"})
        prompt = await client.result("prompts/get", {"name": f"{server}:ask", "arguments": {"topic": "t"}})

    assert called == {"tool": "echo", "server": server, "arguments": {"x": 1, "y": None, "z": {"deep": [1.5, "ü"]}}}
    assert read["contents"] == [{"uri": f"note://{server}//a", "text": f"{server} reads note:///a"}]
    assert from_template["contents"][0]["text"] == f"{server} reads note:///77"
    assert opaque["contents"] == [{"uri": f"urn://{server}:/isbn:1", "text": f"{server} reads urn:isbn:1"}]
    assert json.loads(prompt["messages"][0]["content"]["text"]) == {"topic": "t"}


async def test_a_modern_client_gets_the_envelope_of_its_era_and_a_legacy_client_none_of_it() -> None:
    async with serving(two_eras()) as (app, legacy), connected(app, modern=True) as modern:
        for server in ("old", "new"):
            read = await modern.result("resources/read", {"uri": f"note://{server}//a"})
            assert read["resultType"] == "complete"
            assert read["cacheScope"] == ("public" if server == "new" else "private")
            assert read["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "fastmcp-aggregator"
            plain = await legacy.result("resources/read", {"uri": f"note://{server}//a"})
            assert plain.keys() == {"contents"}


@ERAS
@pytest.mark.parametrize("server", ["old", "new"])
async def test_a_result_passes_unchanged(modern: bool, server: str) -> None:
    result = {
        "content": [
            {"type": "text", "text": "t", "annotations": {"priority": 0.5}, "own": 1},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "future-type", "anything": [None, 1, 2.5]},
        ],
        "structuredContent": {"a": [1, {"b": None}]},
        "isError": True,
        "_meta": {"own/key": {"x": None}},
        "ownField": "kept",
    }
    async with serving(two_eras(), modern=modern) as (_, client):
        got = await client.result("tools/call", {"name": f"{server}:raw", "arguments": result})

    got.pop("resultType", None)
    got["_meta"].pop("io.modelcontextprotocol/serverInfo", None)
    assert got == result


@ERAS
async def test_addresses_in_results_carry_the_server_key_and_can_be_read_back(modern: bool) -> None:
    content = [
        {"type": "resource_link", "uri": "note:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "note:///b", "text": "b"}},
        {"type": "text", "text": "note:///c"},
    ]
    async with serving(two_eras(), modern=modern) as (_, client):
        got = (await client.result("tools/call", {"name": "old:raw", "arguments": {"content": content}}))["content"]
        read = await client.result("resources/read", {"uri": got[0]["uri"]})

    assert [got[0]["uri"], got[1]["resource"]["uri"], got[2]["text"]] == ["note://old//a", "note://old//b", "note:///c"]
    assert read["contents"][0]["text"] == "old reads note:///a"


@ERAS
@pytest.mark.parametrize("server", ["old", "new"])
async def test_the_user_interface_that_a_result_names_can_be_read(modern: bool, server: str) -> None:
    result = {"content": [], "_meta": {"ui": {"resourceUri": "note:///a"}, "ui/resourceUri": "note:///b"}}
    async with serving(two_eras(), modern=modern) as (_, client):
        meta = (await client.result("tools/call", {"name": f"{server}:raw", "arguments": result}))["_meta"]
        read = await client.result("resources/read", {"uri": meta["ui"]["resourceUri"]})

    assert [meta["ui"]["resourceUri"], meta["ui/resourceUri"]] == [f"note://{server}//a", f"note://{server}//b"]
    assert read["contents"][0]["text"] == f"{server} reads note:///a"


@ERAS
@pytest.mark.parametrize("server", ["old", "new"])
async def test_an_error_of_a_child_reaches_the_client_unchanged(modern: bool, server: str) -> None:
    error = {"code": -32042, "message": "wörds", "data": {"deep": [1, None]}}
    async with serving(two_eras(), modern=modern) as (_, client):
        assert await client.error("tools/call", {"name": f"{server}:error", "arguments": error}) == error
        failed = await client.result("tools/call", {"name": f"{server}:fail"})
    assert failed["isError"] is True


@pytest.mark.parametrize("server", ["old", "new"])
async def test_meta_goes_along_but_what_describes_the_callers_connection_stays_here(server: str) -> None:
    meta = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01", "own": [1], "progressToken": "mine"}
    async with serving(two_eras()) as (_, client):
        result = await client.result("tools/call", {"name": f"{server}:params", "arguments": {"a": 1}, "_meta": meta})

    received = json.loads(result["content"][0]["text"])
    assert (received["name"], received["arguments"]) == ("params", {"a": 1})
    assert received["_meta"]["traceparent"] == meta["traceparent"]
    assert received["_meta"]["own"] == [1]
    assert received["_meta"]["progressToken"] != "mine"


@ERAS
@pytest.mark.parametrize("server", ["old", "new"])
async def test_progress_reaches_the_caller_that_asked_for_it_under_its_own_token(modern: bool, server: str) -> None:
    async with serving(two_eras(), modern=modern) as (_, client):
        await client.result("tools/call", {"name": f"{server}:progress", "_meta": {"progressToken": "tok"}})
        heard = [n["params"] for n in client.notifications if n["method"] == "notifications/progress"]

    assert [(p["progressToken"], p["progress"], p["message"]) for p in heard] == [
        ("tok", 1, "step 1"),
        ("tok", 2, "step 2"),
        ("tok", 3, "step 3"),
    ]


async def test_a_call_without_a_token_gets_no_progress() -> None:
    async with serving(two_eras()) as (_, client):
        result = await client.result("tools/call", {"name": "old:progress"})
        assert json.loads(result["content"][0]["text"]) == {"token": None}
        assert client.notifications == []


async def test_calls_to_one_child_do_not_wait_for_each_other() -> None:
    async with serving(two_eras()) as (_, client):
        _, held = client.begin("tools/call", {"name": "old:hold", "arguments": {"n": 1}})
        assert await client.call("old:echo") == {"tool": "echo", "arguments": {}, "server": "old"}
        assert not held.done()
        await client.call("old:release")
        assert json.loads((await held)["result"]["content"][0]["text"])["held"] == {"n": 1}


async def test_any_spelling_is_accepted_from_anyone() -> None:
    document = config(**{"my files": lean(tool_names=["read file"])})
    async with serving(document) as (_, client):
        for name in ("my files:read file", "my files__read file", "my files.read file", "my files_read file"):
            assert (await client.call(name))["tool"] == "read file"


async def test_a_client_that_refuses_names_gets_only_names_that_it_accepts_and_can_call_them() -> None:
    document = config(**{"my files": lean(tool_names=["read:file", "x" * 80]), "git": lean()})
    async with serving(document, name="claude-ai") as (_, client):
        names = await client.names()
        assert all(len(name) <= 64 and name.replace("-", "").replace("_", "").isalnum() for name in names)
        assert "git__echo" in names
        assert len(set(names)) == len(names)
        called = [await client.call(name) for name in names if "read" in name or "xxx" in name]
    assert [c["tool"] for c in called] == ["read:file", "x" * 80]


async def test_names_follow_the_separator_setting() -> None:
    for separator, name in ((":", "old:echo"), ("__", "old__echo"), (".", "old.echo"), ("_", "old_echo")):
        async with serving(two_eras(), separator=separator) as (_, client):
            assert (await client.names())[0] == name


async def test_without_prefix_original_names_are_served() -> None:
    document = config(only=lean(resources=RESOURCES, prompts=PROMPTS))
    async with serving(document, prefix=False) as (_, client):
        assert (await client.names())[0] == "echo"
        assert await client.names("resources/list") == ["note:///a", "urn:isbn:1"]
        assert (await client.call("echo"))["tool"] == "echo"
        assert (await client.result("resources/read", {"uri": "note:///zzz"}))["contents"][0]["uri"] == "note:///zzz"


@ERAS
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("read_file", "Tool name must be prefixed with server key: read_file"),
        (":read_file", "Invalid tool name format: :read_file"),
        ("old:", "Invalid tool name format: old:"),
        ("odl:echo", "Tool not found: odl:echo\nDid you mean: old:echo"),
    ],
)
async def test_an_unknown_tool_is_refused_with_what_to_do(modern: bool, name: str, message: str) -> None:
    async with serving(two_eras(), modern=modern) as (_, client):
        error = await client.error("tools/call", {"name": name})
    assert error["code"] == -32602
    assert error["message"].startswith(message)


async def test_unknown_prompts_and_resources_are_refused() -> None:
    async with serving(two_eras()) as (_, client):
        prompt = await client.error("prompts/get", {"name": "old:aks"})
        resource = await client.error("resources/read", {"uri": "note://nobody//a"})
    assert (prompt["code"], prompt["message"].split("\n")[0]) == (-32602, "Prompt not found: old:aks")
    assert (resource["code"], resource["data"]) == (-32602, {"uri": "note://nobody//a"})
    assert resource["message"].startswith("Resource not found: note://nobody//a")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 1}),
        ("tools/call", {"name": "old:echo", "arguments": [1]}),
        ("tools/call", {"name": "old:echo", "_meta": 1}),
        ("resources/read", {"uri": None}),
        ("prompts/get", {"name": "old:ask", "arguments": "x"}),
        ("tools/list", {"cursor": "x"}),
    ],
)
async def test_malformed_parameters_are_refused(method: str, params: dict[str, Any]) -> None:
    async with serving(two_eras()) as (_, client):
        assert (await client.error(method, params))["code"] == -32602


async def test_nothing_is_answered_before_initialize() -> None:
    async with build_aggregator(two_eras()) as app, connected(app, handshake=False) as client:
        error = await client.error("tools/list")
        await client.start()
        assert await client.names()
    assert error["code"] == -32602


async def test_a_cancellation_of_what_is_no_request_is_ignored() -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app) as client:
        for request_id in ([], {}, None, 1.5, True, "no such request"):
            client.notify("notifications/cancelled", {"requestId": request_id})
            assert (await client.call("a:echo"))["tool"] == "echo", request_id


async def test_a_cancelled_call_is_cancelled_at_the_child() -> None:
    async with serving(two_eras()) as (app, client):
        request_id, held = client.begin("tools/call", {"name": "old:hold"})
        await until(lambda: app.health()["old"].in_flight == 1)
        client.notify("notifications/cancelled", {"requestId": request_id})
        await until(lambda: app.health()["old"].in_flight == 0)
        assert not held.done()


async def test_paginated_children_are_read_to_the_end() -> None:
    async with serving(config(paged=lean(tools=25, page_size=4))) as (_, client):
        names = await client.names()
    assert [n for n in names if "tool_" in n and n[-1].isdigit()] == [f"paged:tool_{i}" for i in range(25)]


async def test_the_introduction_names_the_servers_and_gives_each_its_own_instructions() -> None:
    document = config(old=lean(instructions="Be kind."), new=lean(era="modern", instructions="Be quick."))
    document["mcpServers"]["old"]["description"] = "The old one"
    async with serving(document) as (app, legacy), connected(app, modern=True) as modern:
        for client in (legacy, modern):
            text = client.introduction["instructions"]
            assert "- old: The old one" in text
            assert "## old\nBe kind." in text
            assert "## new\nBe quick." in text


@pytest.mark.process
async def test_names_nest_when_an_aggregator_is_a_child_of_another(tmp_path: Any) -> None:
    import sys

    inner = tmp_path / "inner.json"
    inner.write_text(json.dumps(config(files=lean(tool_names=["tool:sub"], resources=RESOURCES))))
    program = "import sys; from fastmcp_aggregator import build_aggregator; build_aggregator(sys.argv[1]).run()"
    team = {"command": sys.executable, "args": ["-c", program, str(inner)]}
    async with serving(config(team=team)) as (_, client):
        assert "team:files:echo" in await client.names()
        assert (await client.call("team:files:tool:sub"))["tool"] == "tool:sub"
        uri = (await client.names("resources/list"))[0]
        read = await client.result("resources/read", {"uri": uri})
        error = await client.error("tools/call", {"name": "team:files:ecko"})
    assert uri == "note://team/files//a"
    assert read["contents"] == [{"uri": uri, "text": "lean reads note:///a"}]
    assert error["message"].split("\n")[0] == "Tool not found: team:files:ecko"


async def test_many_calls_in_flight_each_get_their_own_answer() -> None:
    async with serving(two_eras()) as (_, client):
        calls = [
            client.begin("tools/call", {"name": f"{s}:echo", "arguments": {"nonce": f"{s}{i}"}})
            for i in range(200)
            for s in ("old", "new")
        ]
        answers = await asyncio.gather(*(future for _, future in calls))
    nonces = [json.loads(a["result"]["content"][0]["text"])["arguments"]["nonce"] for a in answers]
    assert nonces == [f"{s}{i}" for i in range(200) for s in ("old", "new")]


@pytest.mark.parametrize("with_middleware", [False, True], ids=["by itself", "with FastMCP middleware"])
@pytest.mark.parametrize(("uri", "own"), [("note://a//x", "note:///x"), ("note://a/deep/x", "note://deep/x")])
async def test_an_error_of_a_server_names_the_resource_by_the_address_that_the_client_knows(
    uri: str, own: str, with_middleware: bool
) -> None:
    error = {"code": -32002, "message": "Resource not found", "data": {"uri": own, "hint": "none"}}
    refuses = {"resources/read": error, "resources/subscribe": error, "completion/complete": error}
    capabilities = {"tools": {}, "resources": {"subscribe": True}, "completions": {}}
    entry = talking(errors=refuses, resources=[{"uri": own, "name": "x"}], capabilities=capabilities)
    app = build_aggregator(config(a=entry))
    if with_middleware:
        app.add_middleware(Middleware())
    ours = {**error, "data": {"uri": uri, "hint": "none"}}
    argument = {"name": "n", "value": ""}
    async with app, connected(app) as client:
        assert await client.error("resources/read", {"uri": uri}) == ours
        assert await client.error("resources/subscribe", {"uri": uri}) == ours
        reference = {"type": "ref/resource", "uri": uri}
        assert await client.error("completion/complete", {"ref": reference, "argument": argument}) == ours
