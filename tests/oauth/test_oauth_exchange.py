"""Callers whose own tokens are exchanged for tokens of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.auth.providers.jwt import JWTVerifier
from support.account_server import AccountServer, account_server
from support.credentials import AUDIENCE, ISSUER, PAIR, Credentials, bearer
from support.harness import config
from support.serving import Served, served

from fastmcp_aggregator import ConfigError, build_aggregator
from fastmcp_aggregator.settings.model import load_settings

CALL = {"name": "crm:whoami", "arguments": {}}


@asynccontextmanager
async def around(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **oauth: Any
) -> AsyncIterator[tuple[AccountServer, Served, Credentials]]:
    monkeypatch.setenv("CLIENT_SECRET", "s3cret")
    async with account_server() as server:
        server.trusted = JWTVerifier(public_key=PAIR.public_key, issuer=ISSUER, audience=AUDIENCE)
        own = {
            "account": "exchange",
            "grant": "client_credentials",
            "client_id": "hub",
            "client_secret_env": "CLIENT_SECRET",
            "issuer": server.issuer,
        }
        credentials = Credentials(folder, {"keyholder": None})
        app = build_aggregator(
            config(crm={"url": server.url}), servers={"crm": {"oauth": {**own, **oauth}}}, auth=credentials.auth
        )
        async with served(app) as front:
            yield server, front, credentials


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize("how", ["token_exchange", "jwt_bearer"])
async def test_each_caller_is_called_with_what_its_token_was_exchanged_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, modern: bool
) -> None:
    async with around(tmp_path, monkeypatch, exchange=how) as (server, front, _):
        for who in ("alice", "bob"):
            client = await front.connect(modern=modern, headers=bearer(sub=who, groups=["default"]))
            for _ in range(3):
                found = (await client.result("tools/call", CALL))["structuredContent"]
                assert found == {"who": f"{who}-there"}
        assert server.calls == {"alice-there": 3, "bob-there": 3}
        assert [form["resource"] for form in server.presented] == [server.url] * 2  # cached, and for this server alone


async def test_each_caller_is_listed_what_its_exchanged_token_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with around(tmp_path, monkeypatch) as (server, front, credentials):
        server.hidden = {"bob-there": {"write"}}
        listed = {}
        for who in ("alice", "bob", "keyholder"):
            headers = credentials.of(who) if who == "keyholder" else bearer(sub=who, groups=["default"])
            client = await front.connect(modern=True, headers=headers)
            listed[who] = [tool["name"] for tool in (await client.result("tools/list"))["tools"]]
        assert listed == {"alice": ["crm:whoami", "crm:write"], "bob": ["crm:whoami"], "keyholder": []}
        assert set(server.listings) == {"alice-there", "bob-there"}


async def test_a_token_that_has_ended_is_exchanged_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with around(tmp_path, monkeypatch) as (server, front, _):
        client = await front.connect(modern=True, headers=bearer(sub="alice", groups=["default"]))
        await client.result("tools/call", CALL)
        server.revoke("alice-there", also_refresh=True)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        assert len(server.presented) == 2


async def test_without_a_token_of_the_provider_nothing_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with around(tmp_path, monkeypatch) as (server, front, credentials):
        client = await front.connect(modern=True, headers=credentials.of("keyholder"))
        error = await client.error("tools/call", CALL)
        assert "a token of an identity provider" in error["message"]
        server.trusted = None
        client = await front.connect(modern=True, headers=bearer(sub="alice", groups=["default"]))
        error = await client.error("tools/call", CALL)
        assert "refuses what was presented" in error["message"]
        assert server.calls == {}
        server.trusted = JWTVerifier(public_key=PAIR.public_key, issuer=ISSUER, audience=AUDIENCE)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}


@pytest.mark.parametrize("lacking", ["issuer", "client_id"])
def test_callers_tokens_go_nowhere_that_a_server_chooses(lacking: str) -> None:
    oauth = {"account": "exchange", "client_id": "c", "issuer": "https://login.example.com"}
    del oauth[lacking]
    with pytest.raises(ConfigError, match=f"`{lacking}` for `exchange`"):
        load_settings(servers={"crm": {"oauth": oauth}})
