"""A hub in a Python program, without any transport."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
from fastmcp import Client
from mcp.shared.exceptions import MCPError
from support.harness import config, lean
from support.memory import build_aggregator
from support.serving import browser
from test_web_http import GROUPS

from fastmcp_aggregator import AggregatorError


async def test_a_program_lists_calls_and_looks_by_group(tmp_path: Path) -> None:
    servers, groups = tmp_path / "mcp_server.json", tmp_path / "group.json"
    servers.write_text(json.dumps(config(fetch=lean(), files=lean())))
    groups.write_text(json.dumps(GROUPS))
    async with build_aggregator(servers, groups=groups) as hub:
        assert {tool.name for tool in await hub.list_tools(group="web")} == {"fetch:pid", "fetch:params"}
        assert {tool.name for tool in await hub.group("web").list_tools()} == {"fetch:pid", "fetch:params"}
        assert {"fetch:pid", "files:pid"} <= {tool.name for tool in await hub.list_tools()}
        assert {tool.name for tool in await hub.list_tools(group="default")} == {t.name for t in await hub.list_tools()}
        assert [group.id for group in hub.groups()] == ["default", "web", "both"]
        info = hub.group_info("web")
        assert (info.name, info.description, info.servers) == ("Web", "Pages.", ("fetch",))
        called = [await hub.call_tool(name, {}, group="web") for name in ("pid", "fetch:pid", "fetch__pid")]
        assert [json.loads(result.content[0].text)["pid"] for result in called] == [hub.health()["fetch"].pid] * 3
        assert (await hub.call_tool("files:echo", {"x": 1})).content
        assert set(hub.health()) == {"fetch", "files"}


async def test_what_is_not_in_the_group_is_unknown_and_never_suggested() -> None:
    async with build_aggregator(config(fetch=lean(), files=lean()), groups=GROUPS) as hub:
        for name in ("files:pid", "fetch:echo", "echo"):
            with pytest.raises(Exception, match=name) as raised:
                await hub.call_tool(name, {}, group="web")
            assert "files:" not in str(raised.value).replace(name, "")
        for group in ("none", ""):
            with pytest.raises(AggregatorError, match="there is no group"):
                hub.group(group)
        with pytest.raises(AggregatorError, match="there is no group 'none'"):
            await hub.list_tools(group="none")
        with pytest.raises(AggregatorError, match="there is no group 'none'"):
            await hub.call_tool("pid", group="none")
        with pytest.raises(AggregatorError, match="there is no group ''"):
            await hub.call_tool("pid", group="")


async def test_a_bare_name_is_taken_in_python_and_rest_if_it_is_unique_there_and_never_on_the_mcp_wire() -> None:
    async with build_aggregator(config(fetch=lean(), files=lean()), groups=GROUPS) as hub:
        with pytest.raises(MCPError, match="not unique here; name one of: fetch:pid, files:pid"):
            await hub.call_tool("pid", group="both")
        async with browser(hub) as http:
            await rest(http, "web", 200)
            await rest(http, "both", 400)
        for mode in ("legacy", "auto"):
            async with Client(hub.group("web"), mode=mode) as client:
                with pytest.raises(MCPError, match="must be prefixed"):
                    await client.call_tool("pid")


async def rest(http: httpx2.AsyncClient, group: str, status: int) -> None:
    """Call `pid` in a group over the JSON API."""
    answer = await http.post(f"/groups/{group}/mcp/tools/call", json={"name": "pid"})
    assert answer.status_code == status
