"""A group is a full MCP server of its own: what is outside of it does not exist for its callers."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from support.harness import PATIENCE, config, connected, lean, running, until
from support.memory import build_aggregator
from support.serving import browser

from fastmcp_aggregator import Aggregator, AggregatorError, ConfigError
from fastmcp_aggregator.settings.model import load_settings

RESOURCE = {"uri": "test://one", "name": "one"}
PROMPT = {"name": "greet"}
GROUPS = {
    "web": {"name": "Web", "description": "Pages.", "servers": ["fetch"], "tools": ["pid", "fetch:e*"]},
    "all": {"servers": ["fetch", "files"]},
}


def hub(**options: Any) -> Aggregator:
    servers = {
        "fetch": lean(resources=[RESOURCE], prompts=[PROMPT]),
        "files": lean(resources=[RESOURCE], prompts=[PROMPT]),
    }
    return build_aggregator(config(**servers), **{"groups": GROUPS, **options})


@pytest.mark.parametrize("modern", [False, True])
async def test_lists_show_what_belongs_to_the_group(modern: bool) -> None:
    app = hub()
    async with app, connected(app.group("web"), modern=modern) as client:
        names = await client.names()
        assert "fetch:pid" in names
        assert {name.partition(":")[0] for name in names} == {"fetch"}
        assert all(name == "fetch:pid" or name.startswith("fetch:e") for name in names)
        assert await client.names("resources/list") == ["test://fetch/one"]
        assert await client.names("prompts/list") == ["fetch:greet"]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "files:pid", "arguments": {}}),
        ("tools/call", {"name": "fetch:params", "arguments": {}}),
        ("prompts/get", {"name": "files:greet"}),
        ("resources/read", {"uri": "test://files/one"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "files:greet"}, "argument": {}}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "test://files/one"}, "argument": {}}),
    ],
)
async def test_what_is_outside_is_unknown_and_not_suggested(modern: bool, method: str, params: dict[str, Any]) -> None:
    app = hub()
    async with app, connected(app.group("web"), modern=modern) as client:
        error = await client.error(method, params)
        assert error["code"] == -32602
        suggestions = error["message"].partition("\n")[2]
        assert "files" not in suggestions
        assert "fetch:params" not in suggestions


async def test_a_legacy_client_cannot_follow_what_is_outside() -> None:
    app = hub()
    async with app, connected(app.group("web")) as client:
        error = await client.error("resources/subscribe", {"uri": "test://files/one"})
        assert error["code"] == -32602


async def test_calls_inside_reach_the_same_processes_from_every_face() -> None:
    app = hub()
    async with app, connected(app.group("web")) as web, connected(app.group("all")) as every, connected(app) as main:
        pids = [await client.call("fetch:pid") for client in (web, every, main)]
        assert pids[0] == pids[1] == pids[2]


async def test_the_instructions_name_the_servers_of_the_group_alone() -> None:
    app = hub()
    async with app, connected(app.group("web")) as client:
        assert "fetch" in client.introduction["instructions"]
        assert "files" not in client.introduction["instructions"]


async def test_the_default_group_of_the_file_is_what_the_app_itself_shows() -> None:
    app = hub(groups={"default": {"servers": ["files"]}})
    async with app, connected(app) as client:
        assert {name.partition(":")[0] for name in await client.names()} == {"files"}


async def test_clients_are_told_of_changes_in_their_group_alone() -> None:
    app = hub()
    async with app, connected(app.group("web")) as web, connected(app.group("all")) as every:
        await web.names()
        await every.names()
        await every.call("files:add_tool", name="new")
        await every.heard("notifications/tools/list_changed")
        assert not [n for n in web.notifications if n["method"].endswith("list_changed")]


async def test_a_group_is_a_fastmcp_app_for_python_programs() -> None:
    async with hub() as app:
        assert {tool.name for tool in await app.group("web").list_tools()} >= {"fetch:pid"}
        async with Client(app.group("web")) as client:
            assert (await client.call_tool("fetch:pid")).content
        assert app.group_info("web").description == "Pages."
        assert [group.id for group in app.groups()] == ["default", "web", "all"]
        with pytest.raises(AggregatorError, match="there is no group 'none'"):
            app.group("none")


async def test_a_group_that_is_entered_alone_starts_and_ends_the_children() -> None:
    app = hub()
    async with app.group("web") as web:
        assert await web.list_tools()
        assert app.health()["fetch"].state == "running"
    assert app.health() == {}


async def test_a_new_groups_file_changes_what_is_shown_and_tells_clients(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUPS))
    app = hub(groups=path)
    async with app, connected(app.group("web")) as client:
        await client.names()
        before = {key: status.pid for key, status in app.health().items()}
        path.write_text(json.dumps({"web": {"servers": ["files"]}}))
        await app.reload()
        await client.heard("notifications/tools/list_changed")
        assert {name.partition(":")[0] for name in await client.names()} == {"files"}
        assert {key: status.pid for key, status in app.health().items()} == before


async def test_a_bad_groups_file_keeps_what_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUPS))
    app = hub(groups=path)
    async with app, connected(app.group("web")) as client:
        path.write_text(json.dumps({"web": {"servers": ["none"]}}))
        with pytest.raises(ConfigError):
            await app.reload()
        assert "fetch:pid" in await client.names()


async def test_a_group_that_is_gone_shows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUPS))
    app = hub(groups=path)
    async with app, connected(app.group("web")) as client:
        path.write_text("{}")
        await app.reload()
        assert await client.names() == []


async def test_a_group_that_is_gone_is_not_found_over_http(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUPS))
    app = hub(groups=path)
    async with browser(app) as http:
        assert (await http.post("/groups/web/mcp/tools/list")).status_code == 200
        path.write_text("{}")
        await app.reload()
        assert (await http.post("/groups/web/mcp/tools/list")).status_code == 404
        path.write_text(json.dumps(GROUPS))
        await app.reload()
        assert (await http.post("/groups/web/mcp/tools/list")).status_code == 200


async def test_groups_come_from_the_settings_where_none_are_given(tmp_path: Path) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUPS))
    app = hub(groups=None, settings=load_settings(groups=str(path)))
    assert {group.id for group in app.groups()} == {"default", *GROUPS}


@pytest.mark.process
async def test_the_command_line_serves_one_group_and_starts_its_servers_alone(tmp_path: Path) -> None:
    started = tmp_path / "started"
    servers = tmp_path / "mcp.json"
    servers.write_text(json.dumps(config(fetch=lean(), files=lean(record=str(started)))))
    groups = tmp_path / "group.json"
    groups.write_text(json.dumps({"web": {"servers": ["fetch"]}}))
    command = [sys.executable, "-m", "fastmcp_aggregator", str(servers), "--groups", str(groups), "--group", "web"]
    async with running(*command) as server:
        assert {name.partition(":")[0] for name in await server.client.names()} == {"fetch"}
        assert await server.end() == 0
    assert not started.exists()


@pytest.mark.process
@pytest.mark.parametrize(("group", "told"), [("wep", "there is no group 'wep'"), ("web", "$.web.servers[0]")])
async def test_the_command_line_says_what_is_wrong_with_groups(tmp_path: Path, group: str, told: str) -> None:
    servers = tmp_path / "mcp.json"
    servers.write_text(json.dumps(config(fetch=lean())))
    groups = tmp_path / "group.json"
    groups.write_text(json.dumps({"web": {"servers": ["fetch" if group == "wep" else "none"]}}))
    command = [sys.executable, "-m", "fastmcp_aggregator", str(servers), "--groups", str(groups), "--group", group]
    async with running(*command, handshake=False) as server:
        assert await server.wait() == 2
        assert told in server.stderr.decode()


async def test_a_name_alone_leaves_the_group_when_a_second_server_comes_to_offer_it() -> None:
    app = hub(groups={"one": {"servers": ["fetch", "files"], "tools": ["new"]}})
    async with app, connected(app) as main, connected(app.group("one")) as one:
        await main.call("fetch:add_tool", name="new")
        await until(lambda: app.group("one").routes.find("tools", "fetch:new"))  # type: ignore[arg-type]
        assert await one.names() == ["fetch:new"]
        await main.call("files:add_tool", name="new")
        async with asyncio.timeout(PATIENCE):
            while await one.names():
                await one.heard("notifications/tools/list_changed")


DOWN = {"command": "no-such-command"}


def mail(good: dict[str, Any], *tools: str) -> Aggregator:
    groups = {"mail": {"servers": ["good", "evil"], "tools": list(tools)}}
    return build_aggregator(config(good=good, evil=lean()), groups=groups, strict=False, ready_wait=60)


async def test_a_name_alone_does_not_pass_to_another_server_while_one_is_down() -> None:
    app = mail(DOWN, "echo", "evil:pid")
    async with app, connected(app.group("mail")) as client:
        assert await client.names() == ["evil:pid"]
        error = await client.error("tools/call", {"name": "evil:echo", "arguments": {}})
        assert error["code"] == -32602


async def test_a_call_by_a_name_alone_does_not_reach_another_server_while_one_is_down() -> None:
    async with mail(DOWN) as app:
        with pytest.raises(Exception, match="'echo' is named without its server, and 'good' has not been listed"):
            await app.call_tool("echo", {}, group="mail")
        assert (await app.call_tool("evil:echo", {}, group="mail")).content


async def test_a_name_alone_does_not_pass_to_another_server_while_a_tool_is_left_out() -> None:
    odd = lean(tool_extra={"inputSchema": 5})
    async with mail(odd, "echo", "evil:pid") as app, connected(app.group("mail")) as client:
        assert await client.names() == ["evil:pid"]
        assert (await client.error("tools/call", {"name": "evil:echo", "arguments": {}}))["code"] == -32602
    async with mail(odd) as app:
        with pytest.raises(Exception, match="not unique"):
            await app.call_tool("echo", {}, group="mail")


@pytest.mark.parametrize("name", ["good:send", "good__send", "good_send"])
async def test_a_name_that_begins_with_the_key_of_one_server_does_not_reach_another_by_itself(name: str) -> None:
    servers = config(good=lean(), evil=lean(tool_names=[name]))
    async with build_aggregator(servers) as app:
        with pytest.raises(Exception, match=f"'{name}' may mean something of 'good'; name it with its server"):
            await app.call_tool(name, {})
        assert (await app.call_tool(f"evil:{name}", {})).content
        assert (await app.call_tool("good:echo", {})).content


@pytest.mark.parametrize("name", ["gone:pay", "Good:pay"])
async def test_a_name_that_may_be_of_a_server_that_is_gone_does_not_reach_another_by_itself(name: str) -> None:
    async with build_aggregator(config(good=lean(), evil=lean(tool_names=[name]))) as app:
        with pytest.raises(Exception, match=r"may mean something of .*; name it with its server"):
            await app.call_tool(name, {})
        assert (await app.call_tool(f"evil:{name}", {})).content


async def test_a_name_of_which_one_is_withdrawn_is_not_told_as_if_it_were_there() -> None:
    async with build_aggregator(config(a=lean(), b=lean())) as app:
        app.withdraw("a", "echo")
        with pytest.raises(Exception, match=r"'echo' is not unique here; name one of: b:echo$"):
            await app.call_tool("echo", {})


async def test_the_last_catalogue_of_a_server_that_is_down_counts(tmp_path: Path) -> None:
    async with mail(lean()) as app, connected(app.group("mail")) as client:
        assert await client.names()
        child = app.children["good"]
        child.stop()
        await until(lambda: not child.is_serving)
        with pytest.raises(Exception, match="not unique"):
            await app.call_tool("echo", {}, group="mail")
