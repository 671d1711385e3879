"""The groups over HTTP, as seen by who may use them, by who may not, and by who has no key."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.credentials import Credentials
from support.harness import config, lean
from support.memory import build_aggregator
from support.serving import browser

from fastmcp_aggregator.front.http.security import NOT_FOUND
from fastmcp_aggregator.virtual_server import VirtualServer

GROUPS = {"web": {"servers": ["a"]}, "secret": {"servers": ["a"]}}
LIST = {"name": "a:echo"}


class Hub:
    """A hub with keys on a real socket: `ann` may use all groups, `bob` only `web`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        credentials = Credentials(folder, {"ann": None, "bob": ["web"]})
        self.ann, self.bob = credentials.of("ann"), credentials.of("bob")
        self.app = build_aggregator(config(a=lean()), groups=GROUPS, auth=credentials.auth)
        self.made: list[str] = []
        """The groups of which an app was made."""
        make = VirtualServer.http_app_behind_checks

        def counted(server: VirtualServer, path: str, options: dict[str, Any]) -> Any:
            self.made.append(server._group_id)
            return make(server, path, options)

        monkeypatch.setattr(VirtualServer, "http_app_behind_checks", counted)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[httpx2.AsyncClient]:
        async with browser(self.app) as http:
            self.made.clear()
            yield http


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    return Hub(tmp_path, monkeypatch)


async def test_group_without_a_key_is_answered_like_one_that_is_not_there(hub: Hub) -> None:
    async with hub.served() as http:
        answers = [
            await http.post(f"/groups/{group_id}/{path}", json=LIST)
            for group_id in ("web", "default", "none")
            for path in ("mcp", "mcp/tools/call", "", "else")
        ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({(answer.content, answer.headers["www-authenticate"]) for answer in answers}) == 1
    assert hub.made == []


async def test_group_of_others_is_answered_like_one_that_is_not_there_and_no_app_is_made(hub: Hub) -> None:
    async with hub.served() as http:
        answers = [
            await http.post(f"/groups/{group_id}/mcp/tools/call", json=LIST, headers=hub.bob)
            for group_id in ("secret", "default", "none")
        ]
        assert {(answer.status_code, answer.content) for answer in answers} == {(404, NOT_FOUND.encode())}
        assert hub.made == []
        assert (await http.post("/groups/web/mcp/tools/call", json=LIST, headers=hub.bob)).status_code == 200
    assert hub.made == ["web"]


async def test_group_is_not_made_for_a_request_to_another_host(hub: Hub) -> None:
    async with hub.served() as http:
        headers = {**hub.ann, "Host": "evil.example"}
        answer = await http.post("/groups/web/mcp/tools/call", json=LIST, headers=headers)
        assert (answer.status_code, hub.made) == (421, [])


@pytest.mark.parametrize("depth", [2, 3, 140])
async def test_groups_do_not_nest(hub: Hub, depth: int, caplog: Any) -> None:
    caplog.set_level(logging.WARNING)
    async with hub.served() as http:
        answer = await http.post("/groups/default" * depth + "/mcp/tools/call", json=LIST, headers=hub.ann)
        assert answer.status_code == 404
        assert len(hub.made) <= 1
        assert (await http.post("/groups/default/mcp/tools/call", json=LIST, headers=hub.ann)).status_code == 200
    assert hub.made == ["default"]
    assert not caplog.records


@pytest.mark.parametrize("path", ["health", "ready", "status", "groups", "openapi.json", "dashboard/state", "metrics"])
async def test_group_default_has_no_hub_of_its_own(path: str) -> None:
    async with browser(build_aggregator(config(a=lean()), groups=GROUPS)) as http:
        assert (await http.get(f"/groups/default/{path}")).status_code == 404


async def test_group_is_authenticated_once_for_a_request(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []
    auth: Any = hub.app.auth
    verify = auth.verify_token

    async def counted(token: str) -> Any:
        verified.append(token)
        return await verify(token)

    monkeypatch.setattr(auth, "verify_token", counted)
    async with hub.served() as http:
        assert (await http.post("/groups/web/mcp/tools/call", json=LIST, headers=hub.bob)).status_code == 200
    assert len(verified) == 1
