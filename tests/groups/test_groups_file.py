"""A groups file that changes while the program serves it: clients of both eras are told, and see what is there now."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from support.harness import PATIENCE, config, free_port, lean, running, until
from support.wire_http import HttpClient
from support.wire_sse import SseClient

from fastmcp_aggregator import Aggregator, build_aggregator, load_config
from fastmcp_aggregator.settings.model import load_settings

pytestmark = pytest.mark.process


async def test_live_clients_of_every_kind_are_told_of_a_new_groups_file(tmp_path: Path) -> None:
    servers, groups, port = tmp_path / "mcp.json", tmp_path / "group.json", free_port()
    servers.write_text(json.dumps(config(fetch=lean(), files=lean())))
    groups.write_text(json.dumps({"web": {"servers": ["fetch"]}}))
    command = [sys.executable, "-m", "fastmcp_aggregator", str(servers), "--groups", str(groups)]
    base = f"http://127.0.0.1:{port}"
    async with running(*command, "--transport", "http", "--port", str(port), handshake=False) as server:
        await server.said("serving on")
        clients = [
            HttpClient(f"{base}/groups/web/mcp", modern=False, name="legacy"),
            HttpClient(f"{base}/groups/web/mcp", modern=True, name="modern"),
            SseClient(f"{base}/groups/web/mcp/sse"),
        ]
        elsewhere = HttpClient(f"{base}/mcp", modern=False, name="elsewhere")
        try:
            for client in (*clients, elsewhere):
                await client.start()
                names = await client.names()
                assert ("files:pid" in names) == (client is elsewhere)
            clients[1].begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            await clients[1].heard("notifications/subscriptions/acknowledged")
            pid = await clients[0].call("fetch:pid")
            groups.write_text(json.dumps({"web": {"servers": ["files", "fetch"], "tools": ["files:pid", "fetch:pid"]}}))
            for client in clients:
                await client.heard("notifications/tools/list_changed")
                assert {name.replace("__", ":") for name in await client.names()} == {"fetch:pid", "files:pid"}
            assert await clients[0].call("fetch:pid") == pid
            groups.write_text("{")
            await server.said(
                f"{groups} is refused as it is now, so what it said before stays in use; {servers} has been taken up."
            )
            assert await clients[0].call("files:pid")
            assert not elsewhere.notifications
            async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE, trust_env=False) as http:
                assert [group["id"] for group in (await http.get("/groups")).json()] == ["default", "web"]
        finally:
            for client in (*clients, elsewhere):
                await client.close()


class Files:
    """A config and a groups file, and the hub that follows them."""

    def __init__(self, folder: Path) -> None:
        self.config, self.groups = folder / "mcp.json", folder / "group.json"
        self.config.write_text(json.dumps(config(a=lean(), b=lean())))
        self.groups.write_text(json.dumps({"web": {"servers": ["a", "b"]}}))
        self.hub = build_aggregator(str(self.config), groups=str(self.groups), strict=False)

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        async with self.hub, self.hub._backend.files.following(watch=False):
            yield

    async def read_again(self, caplog: pytest.LogCaptureFixture) -> str:
        """Have them read again; what the log has said of it."""
        caplog.clear()
        self.hub._backend.files.ask()
        await until(lambda: [record for record in caplog.records if record.levelno >= logging.WARNING])
        return caplog.text


async def test_a_config_that_is_broken_does_not_hold_up_what_a_group_loses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    async with files.followed():
        files.config.write_text("{")
        files.groups.write_text(json.dumps({"web": {"servers": ["a"]}}))
        said = await files.read_again(caplog)
        assert (
            f"{files.config} is refused as it is now, so what it said before stays in use; {files.groups} has been"
            in said
        )
        assert "is not valid JSON" in said
        assert files.hub.group_info("web").servers == ("a",)
        assert {tool.name.partition(":")[0] for tool in await files.hub.list_tools(group="web")} == {"a"}
        assert list(files.hub.health()) == ["a", "b"]


async def test_a_groups_file_that_is_broken_does_not_hold_up_the_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    async with files.followed():
        files.groups.write_text("{")
        files.config.write_text(json.dumps(config(a=lean(), c=lean(), b=lean())))
        said = await files.read_again(caplog)
        assert (
            f"{files.groups} is refused as it is now, so what it said before stays in use; {files.config} has been"
            in said
        )
        assert list(files.hub.health()) == ["a", "c", "b"]
        assert files.hub.group_info("web").servers == ("a", "b")
        assert files.hub.group_info("default").servers == ("a", "c", "b")


@pytest.mark.parametrize(
    ("servers", "groups", "problems"),
    [
        ("{", "{", ["mcp.json $: is not valid JSON", "group.json $: is not valid JSON"]),
        ("{", json.dumps({"web": {"servers": ["c"]}}), ["mcp.json $: is not valid JSON", "there is no server 'c'"]),
    ],
    ids=["both are broken", "groups need the broken config"],
)
async def test_where_neither_can_be_used_alone_everything_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, servers: str, groups: str, problems: list[str]
) -> None:
    files = Files(tmp_path)
    async with files.followed():
        files.config.write_text(servers)
        files.groups.write_text(groups)
        said = await files.read_again(caplog)
        assert "the config in use is kept, for the new one cannot be used" in said
        for problem in problems:
            assert problem in said
        assert list(files.hub.health()) == ["a", "b"]
        assert files.hub.group_info("web").servers == ("a", "b")


@pytest.mark.parametrize("is_broken", [False, True], ids=["the groups file is right", "the groups file is broken"])
async def test_a_server_is_taken_away_although_a_group_still_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_broken: bool
) -> None:
    files = Files(tmp_path)
    async with files.followed():
        files.config.write_text(json.dumps(config(a=lean())))
        groups = {"web": {"servers": ["a", "b"], "tools": ["a:echo", "b:echo"]}, "other": {"servers": ["b"]}}
        files.groups.write_text("{" if is_broken else json.dumps(groups))
        said = await files.read_again(caplog)
        assert (
            f"{files.groups} names 'b', which {files.config} no longer has; take it out before the next start" in said
        )
        assert list(files.hub.health()) == ["a"]
        assert files.hub.group_info("web").servers == ("a",)
        files.config.write_text(json.dumps(config(a=lean(), b=lean())))
        files.groups.write_text(json.dumps(groups))
        files.hub._backend.files.ask()
        await until(lambda: files.hub.group_info("web").servers == ("a", "b"))
        assert files.hub.group_info("web").tools == ("a:echo", "b:echo")


async def test_a_server_that_is_back_is_in_its_group_again_though_the_groups_file_is_broken_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    async with files.followed():
        files.config.write_text(json.dumps(config(a=lean())))
        files.groups.write_text("{")
        await files.read_again(caplog)
        assert files.hub.group_info("web").servers == ("a",)
        files.config.write_text(json.dumps(config(a=lean(), b=lean())))
        await files.read_again(caplog)
        assert files.hub.group_info("web").servers == ("a", "b")


async def test_a_disabled_server_that_a_group_names_can_be_taken_away_with_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    files.config.write_text(json.dumps(config(a=lean(), b={**lean(), "disabled": True}, c=lean())))
    files.hub = build_aggregator(str(files.config), groups=str(files.groups), strict=False)
    async with files.followed():
        files.config.write_text(json.dumps(config(a=lean())))
        assert f"{files.groups} names 'b', which {files.config} no longer has" in await files.read_again(caplog)
        assert list(files.hub.health()) == ["a"]


async def test_a_group_may_name_a_server_that_is_disabled(tmp_path: Path) -> None:
    off = config(a=lean(), b={**lean(), "disabled": True})
    app = build_aggregator(off, groups={"web": {"servers": ["a", "b"], "tools": ["a:echo", "b:echo"]}})
    assert (app.group_info("web").servers, app.group_info("web").tools) == (("a",), ("a:echo", "b:echo"))
    assert app.group_info("web").absent == ("b",)


async def test_a_group_that_is_served_alone_changes_beside_a_broken_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    files.groups.write_text(json.dumps({"web": {"servers": ["a"]}}))
    files.hub = Aggregator(
        load_config(str(files.config)), load_settings(strict=False), groups=str(files.groups), only="web"
    )
    async with files.followed():
        files.config.write_text("{")
        files.groups.write_text(json.dumps({"web": {"servers": ["b"]}}))
        await files.read_again(caplog)
        assert list(files.hub.health()) == ["b"]
