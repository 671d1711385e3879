"""A search instead of all tools, prompts and resources as tools, and tools under other names: as clients see them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from mcp_types import Implementation
from support.harness import RawClient, config, connected, lean, talking
from support.memory import build_aggregator

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.front.fastmcp import tool_index
from fastmcp_aggregator.front.fastmcp.provider import ChildrenProvider
from fastmcp_aggregator.front.fastmcp.tool_views import FoundTools
from fastmcp_aggregator.groups import load_groups
from fastmcp_aggregator.naming.tool_ranking import Ranked
from fastmcp_aggregator.protocol.json_rpc import json_size

SEARCH = ["search_tools", "call_tool"]
WEATHER = {"description": "Tells the weather of tomorrow.", "x-unknown": {"kept": True}}


def hub(*, groups: dict[str, Any] | None = None, **options: Any) -> Aggregator:
    servers = {
        "files": lean(
            tool_names=["read file"], prompts=[{"name": "sum"}], resources=[{"uri": "file:///a", "name": "a"}]
        ),
        "sky": lean(tool_names=["forecast"], tool_extra=WEATHER),
    }
    return build_aggregator(config(**servers), groups=groups, **options)


def client(app: Any, name: str = "test", mode: str = "auto") -> Client[Any]:
    return Client(app, mode=mode, client_info=Implementation(name=name, version="1"))


async def names(of: Client[Any]) -> list[str]:
    return [tool.name for tool in await of.list_tools()]


async def found(of: Client[Any], query: str) -> list[dict[str, Any]]:
    result = await of.call_tool("search_tools", {"query": query})
    assert result.structured_content is not None
    tools: list[dict[str, Any]] = result.structured_content["result"]
    return tools


# Tool search


@pytest.mark.parametrize(("name", "listed"), [("test", "sky:echo"), ("claude-ai", "sky__echo")])
async def test_tools_with_a_page_stay_listed_because_hosts_find_the_page_there(name: str, listed: str) -> None:
    with_page = {**WEATHER, "_meta": {"ui": {"resourceUri": "ui://page"}}}
    app = build_aggregator(config(files=lean(), sky=lean(tool_extra=with_page)), tool_search=True)
    async with connected(app, name=name) as caller:
        tools = (await caller.result("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == [listed, *SEARCH]
        assert tools[0]["_meta"]["ui"] == {"resourceUri": "ui://sky/page"}
        await caller.call(listed)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_with_tool_search_clients_find_tools_and_call_them(mode: str) -> None:
    async with client(hub(tool_search=True), mode=mode) as caller:
        assert await names(caller) == SEARCH
        first = (await found(caller, "weather tomorrow"))[0]
        assert first["name"].startswith("sky:")
        assert first["x-unknown"] == {"kept": True}
        called = await caller.call_tool("call_tool", {"name": "sky:forecast", "arguments": {"day": 1}})
        assert json.loads(called.content[0].text) == {"server": "lean", "tool": "forecast", "arguments": {"day": 1}}


async def test_a_search_tells_names_that_its_caller_accepts_and_every_spelling_can_be_called() -> None:
    async with client(hub(tool_search=True), "claude-ai") as caller:
        listed = {tool["name"] for tool in await found(caller, "read file")}
        (name,) = [name for name in listed if "read" in name]
        assert name.startswith("files__read_file_")
        for spelling in (name, "files:read file", "files_read file"):
            called = await caller.call_tool("call_tool", {"name": spelling})
            assert json.loads(called.content[0].text)["tool"] == "read file"


async def test_tools_that_are_not_listed_can_still_be_called_by_their_names() -> None:
    async with client(hub(tool_search=True)) as caller:
        assert json.loads((await caller.call_tool("sky:forecast")).content[0].text)["server"] == "lean"


async def test_a_name_that_is_none_is_told_to_the_model_with_suggestions() -> None:
    async with client(hub(tool_search=True)) as caller:
        for name, words in (
            ("sky:forcast", "Tool not found: sky:forcast\nDid you mean: sky:forecast?"),
            ("search_tools", "must be prefixed with server key: search_tools"),
        ):
            with pytest.raises(ToolError) as raised:
                await caller.call_tool("call_tool", {"name": name})
            assert words in str(raised.value)


async def test_a_tool_of_the_apps_own_is_found_and_called_as_well() -> None:
    app = hub(tool_search=True)

    @app.tool
    def greet(name: str) -> str:
        """Greets somebody politely."""
        return f"Good day, {name}"

    async with client(app) as caller:
        assert await names(caller) == SEARCH
        assert (await found(caller, "greets politely"))[0]["name"] == "greet"
        called = await caller.call_tool("call_tool", {"name": "greet", "arguments": {"name": "Ada"}})
        assert called.content[0].text == "Good day, Ada"


async def test_a_search_makes_no_list_and_computes_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, elsewhere = threading.get_ident(), []

    async def refuse(_: Any) -> Any:
        raise AssertionError("all tools were made for a search")

    class Watched(tool_index.ToolRanking):
        def __init__(self, tools: Any) -> None:
            elsewhere.append(threading.get_ident() != loop)
            super().__init__(tools)

        def best(self, question: str, most: int) -> Ranked:
            elsewhere.append(threading.get_ident() != loop)
            assert len(question) <= 1000
            return super().best(question, most)

    monkeypatch.setattr(tool_index, "ToolRanking", Watched)
    monkeypatch.setattr(ChildrenProvider, "_list_tools", refuse)
    async with client(hub(tool_search=True)) as caller:
        for _ in range(2):
            assert (await found(caller, "weather tomorrow " * 100_000))[0]["name"].startswith("sky:")
    assert elsewhere[-3:] == [True] * 3  # one index, and two searches in it


async def test_the_lists_that_were_searched_last_stay_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Counted(tool_index.ToolRanking):
        def __init__(self, tools: Any) -> None:
            made.append(self)
            super().__init__(tools)

    monkeypatch.setattr(tool_index, "ToolRanking", Counted)
    index = tool_index.ToolIndex(hub()._directory)
    lists = [[WEATHER | {"name": f"weather-{number}"}] for number in range(9)]
    for tools in (*lists, lists[8], lists[0]):
        assert (await index.best_of(tools, "weather", 5)).tools == tools
    assert len(made) == 10  # the first was dropped for the ninth


async def test_of_very_long_texts_the_beginnings_are_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    indexed: list[Any] = []

    class Kept(tool_index.ToolRanking):
        def __init__(self, tools: Any) -> None:
            indexed.extend(tools)
            super().__init__(indexed)

    monkeypatch.setattr(tool_index, "ToolRanking", Kept)
    schema = {"type": "object", "properties": {f"a{number}": {"description": "y" * 1000} for number in range(10)}}
    tools = [{"name": f"t{number}", "description": "x" * 9000, "inputSchema": schema} for number in range(500)]
    await tool_index.ToolIndex(hub()._directory).best_of(tools, "weather", 5)
    assert {len(tool.description) for tool in indexed} == {2097}
    assert {sum(map(len, tool.arguments)) for tool in indexed} == {2097}


async def test_a_search_says_when_no_tool_fits() -> None:
    async with client(hub(tool_search=True)) as caller:
        told = (await caller.call_tool("search_tools", {"query": "bake a chocolate cake"})).content[0].text
        assert told == "No tool fits. Try other words for what the tool does; the servers are: files, sky"


async def test_a_search_that_is_not_sure_names_the_nearest_tools() -> None:
    async with client(hub(tool_search=True)) as caller:
        told = (
            (await caller.call_tool("search_tools", {"query": "forecast how many visitors buy shoes"})).content[0].text
        )
        assert told.startswith(
            "No tool seems to fit. The nearest, which a search for their names tells in full:\n- sky:"
        )
        assert told.endswith("the servers are: files, sky")
        assert (await found(caller, "sky:forecast"))[0]["name"] == "sky:forecast"


@pytest.mark.parametrize(("name", "listed"), [("test", "sky:forecast"), ("claude-ai", "sky__forecast")])
async def test_what_a_client_has_found_stays_in_its_list_alone(name: str, listed: str) -> None:
    async def tools(of: RawClient) -> list[str]:
        return [tool["name"] for tool in (await of.result("tools/list"))["tools"]]

    async def search(of: RawClient, query: str) -> None:
        await of.result("tools/call", {"name": "search_tools", "arguments": {"query": query}})

    app = hub(tool_search=True)
    async with connected(app, name=name) as one, connected(app, name=name) as other:
        assert await tools(one) == await tools(other) == SEARCH
        await search(one, "forecast")
        await one.heard("notifications/tools/list_changed")
        assert (await tools(one))[:3] == [*SEARCH, listed]
        await one.call(listed)
        before = await tools(one)
        await search(one, "forecast")
        await search(other, "bake a cake")
        assert (await tools(one), await tools(other)) == (before, SEARCH)
        assert not [each for each in one.notifications if each["method"] == "notifications/tools/list_changed"]
    async with connected(app, name=name, modern=True) as modern:
        await search(modern, "forecast")
        assert await tools(modern) == SEARCH


class Somebody:
    pass


def test_of_what_a_client_has_found_the_last_twenty_are_kept() -> None:
    found_tools, somebody = FoundTools(), Somebody()
    assert found_tools.add(somebody, ["a", "b"])  # type: ignore[arg-type]
    assert not found_tools.add(somebody, ["b"])  # type: ignore[arg-type]
    assert found_tools.add(somebody, [str(number) for number in range(20)])  # type: ignore[arg-type]
    assert list(found_tools.of(somebody)) == [str(number) for number in range(20)]  # type: ignore[arg-type]
    assert list(found_tools.of(None)) == []


def test_an_answer_of_a_search_has_a_bound_and_what_a_call_needs() -> None:
    properties = {f"day_{n}": {"type": "integer", "description": "d" * 400, "x-more": "y" * 100} for n in range(5)}
    schema = {"type": "object", "properties": properties, "required": ["day_0"]}
    text = "Tells the weather of tomorrow. " + "w" * 3000
    tools = [{"name": f"sky:forecast_{n}", "description": text, "inputSchema": schema, "_meta": {}} for n in range(5)]
    told = tool_index.within_bounds(tools)
    assert json_size({"result": told}) <= 4000
    assert [tool["name"] for tool in told] == [tool["name"] for tool in tools]
    assert all(tool["description"].startswith("Tells the weather of tomorrow.") for tool in told)
    assert told[0]["inputSchema"]["properties"].keys() == properties.keys()
    assert told[0]["inputSchema"]["required"] == ["day_0"]
    assert told[0]["inputSchema"]["properties"]["day_0"]["type"] == "integer"
    assert told[-1]["inputSchema"]["properties"]["day_0"] == {}
    assert tool_index.within_bounds([WEATHER | {"name": "a"}]) == [WEATHER | {"name": "a"}]
    huge = {"name": "a", "inputSchema": {"type": "object", "properties": {"p" * 900 + str(n): {} for n in range(50)}}}
    assert json_size({"result": tool_index.within_bounds([huge] * 5)}) <= 4000


async def test_an_error_of_the_tool_is_an_error_of_call_tool() -> None:
    async with client(hub(tool_search=True)) as caller:
        called = await caller.call_tool("call_tool", {"name": "sky:fail"}, raise_on_error=False)
        assert (called.is_error, called.content[0].text) == (True, "it failed")


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_tool_behind_call_tool_can_ask_its_caller(era: str, modern: bool) -> None:
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    question = {"method": "elicitation/create", "params": form}
    call = {"name": "a:play", "arguments": {"script": [{"ask": {"q": question}}]}}
    app = build_aggregator(config(a=talking(era=era)), tool_search=True)
    async with connected(app, modern=modern, capabilities={"elicitation": {}}) as caller:
        caller.on_question = lambda method, params: {"result": {"action": "accept", "content": {"x": 1}}}
        response = await caller.converse("tools/call", {"name": "call_tool", "arguments": call})
    assert json.loads(response["result"]["content"][0]["text"]) == [{"q": {"action": "accept", "content": {"x": 1}}}]


async def test_the_other_lists_stay_as_they_were() -> None:
    async with client(hub(tool_search=True), "claude-ai") as caller:
        assert [prompt.name for prompt in await caller.list_prompts()] == ["files__sum"]
        assert [str(resource.uri) for resource in await caller.list_resources()] == ["file://files//a"]


async def test_each_group_says_for_itself_and_a_search_finds_what_is_in_the_group_alone() -> None:
    groups = {
        "searched": {"servers": ["sky"], "tool_search": True},
        "plain": {"servers": ["sky"], "tools": ["forecast"], "tool_search": False},
        "asked": {"servers": ["sky"], "tools": ["forecast"]},
    }
    app = hub(groups=groups)
    async with client(app.group("searched")) as caller:
        assert await names(caller) == SEARCH
        assert {tool["name"].partition(":")[0] for tool in await found(caller, "forecast")} == {"sky"}
        assert isinstance((await caller.call_tool("search_tools", {"query": "read file"})).data, str)
        with pytest.raises(ToolError, match="not found"):
            await caller.call_tool("call_tool", {"name": "files:read file"})
    async with client(app.group("asked")) as caller:
        assert await names(caller) == ["sky:forecast"]
    async with client(hub(groups=groups, tool_search=True).group("plain")) as caller:
        assert await names(caller) == ["sky:forecast"]


async def test_a_group_that_changes_its_mind_tells_its_clients(tmp_path: Path) -> None:
    file = tmp_path / "group.json"
    file.write_text(json.dumps({"web": {"servers": ["sky"]}}))
    app = build_aggregator(config(sky=lean()), groups=file)
    async with connected(app.group("web")) as caller:
        assert len((await caller.result("tools/list"))["tools"]) > 2
        file.write_text(json.dumps({"web": {"servers": ["sky"], "tool_search": True}}))
        await app.reload()
        await caller.heard("notifications/tools/list_changed")
        assert [tool["name"] for tool in (await caller.result("tools/list"))["tools"]] == SEARCH


def test_a_group_says_it_with_true_or_false() -> None:
    with pytest.raises(ConfigError, match="tool_search: must be true or false, without quotes, not a string"):
        load_groups({"web": {"servers": ["sky"], "tool_search": "yes"}}, ["sky"])


async def test_a_list_with_a_search_is_smaller_and_its_size_is_what_clients_get() -> None:
    app = hub(tool_search=True)
    async with connected(app) as caller:
        listed = (await caller.result("tools/list"))["tools"]
        assert await app.views.size_of_search() == json_size({"tools": listed})


# Prompts and resources as tools


async def test_the_tools_for_prompts_and_resources_are_made_once() -> None:
    async with hub(prompts_as_tools=True, resources_as_tools=True) as app:
        for name in ("list_prompts", "get_prompt", "list_resources", "read_resource"):
            made = await app.get_tool(name)
            assert made is not None
            assert await app.get_tool(name) is made


async def test_prompts_and_resources_can_be_had_by_tools() -> None:
    app = hub(prompts_as_tools=True, resources_as_tools=True)
    async with client(app) as caller:
        listed = await names(caller)
        assert {"sky:forecast", "list_prompts", "get_prompt", "list_resources", "read_resource"} <= {*listed}
        prompts = json.loads((await caller.call_tool("list_prompts")).content[0].text)
        assert [prompt["name"] for prompt in prompts] == ["files:sum"]
        assert (await caller.call_tool("get_prompt", {"name": "files:sum"})).content
        resources = json.loads((await caller.call_tool("list_resources")).content[0].text)
        read = await caller.call_tool("read_resource", {"uri": resources[0]["uri"]})
        assert read.content[0].text == "lean reads file:///a"


async def test_tools_are_announced_where_only_prompts_are_offered() -> None:
    only_prompts = lean(prompts=[{"name": "sum"}], capabilities={"prompts": {}})
    for options, announced in (({}, False), ({"prompts_as_tools": True}, True)):
        async with build_aggregator(config(a=only_prompts), **options) as app, connected(app) as caller:
            assert ("tools" in caller.introduction["capabilities"]) is announced


# Single tools


CHANGES = {
    "sky": {
        "tools": {
            "forecast": {"name": "weather", "title": "Weather", "description": "What it will be like."},
            "fail": {"hidden": True},
            "echo": {"description": "Says it."},
        }
    }
}


@pytest.mark.parametrize("through_fastmcp", [False, True])
async def test_a_tool_has_the_name_and_the_texts_that_the_settings_give_it(through_fastmcp: bool) -> None:
    app = hub(servers=CHANGES)
    if through_fastmcp:

        @app.tool
        def own() -> None: ...

    async with client(app) as caller:
        tools = {tool.name: tool for tool in await caller.list_tools()}
        weather = tools["sky:weather"]
        assert (weather.title, weather.description) == ("Weather", "What it will be like.")
        assert tools["sky:echo"].description == "Says it."
        assert {"sky:forecast", "sky:fail"} & tools.keys() == set()
        assert json.loads((await caller.call_tool("sky:weather")).content[0].text)["tool"] == "forecast"


async def test_a_changed_tool_keeps_the_names_of_each_client_and_is_gone_under_the_old_one() -> None:
    async with client(hub(servers=CHANGES), "claude-ai") as caller:
        assert "sky__weather" in await names(caller)
        for spelling in ("sky__weather", "sky:weather", "sky.weather"):
            assert json.loads((await caller.call_tool(spelling)).content[0].text)["tool"] == "forecast"
        for gone in ("sky:forecast", "sky:fail"):
            with pytest.raises(Exception, match="Tool not found"):
                await caller.call_tool(gone)


async def test_a_changed_tool_has_its_arguments_checked_and_is_named_in_a_group_as_its_server_names_it() -> None:
    schema = {"type": "object", "properties": {"day": {"type": "integer"}}}
    sky = lean(tool_extra={"inputSchema": schema})
    groups = {"web": {"servers": ["sky"], "tools": ["sky:echo"]}}
    changes = {"sky": {"tools": {"echo": {"name": "weather"}}}}
    app = build_aggregator(config(sky=sky), groups=groups, servers=changes, validate_arguments=True)
    async with client(app.group("web")) as caller:
        assert await names(caller) == ["sky:weather"]
        with pytest.raises(Exception, match="day"):
            await caller.call_tool("sky:weather", {"day": "x"})


async def test_a_changed_tool_is_found_without_its_server_by_its_new_name() -> None:
    async with hub(servers=CHANGES) as app:
        assert json.loads((await app.call_tool("weather")).content[0].text)["tool"] == "forecast"  # type: ignore[union-attr]
