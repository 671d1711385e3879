"""Callers whose own tokens are exchanged for tokens of a server."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.auth.providers.jwt import JWTVerifier
from support.account_server import AccountServer, account_server
from support.credentials import Credentials, bearer, token
from support.harness import config
from support.serving import Served, served
from support.tokens import AUDIENCE, ISSUER, PAIR

from fastmcp_aggregator import ConfigError, build_aggregator
from fastmcp_aggregator.oauth.errors import ClientRefused
from fastmcp_aggregator.oauth.id_jag import is_id_jag, require_ours
from fastmcp_aggregator.settings.model import load_settings

CALL = {"name": "crm:whoami", "arguments": {}}


@asynccontextmanager
async def around(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, takes_id_jag: bool = False, **oauth: Any
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
        if takes_id_jag:  # whoever issues them makes them for the authorization server
            server.takes_id_jag_of = "hub"
            server.trusted = JWTVerifier(public_key=PAIR.public_key, issuer=ISSUER, audience=server.issuer)
            credentials.settings["jwt_audience"] = server.issuer
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


# ID-JAG, the second leg.


def id_jag(server: AccountServer, **claims: Any) -> dict[str, str]:
    """The header with an identity assertion."""
    own = {"aud": server.issuer, "client_id": "hub", "resource": server.url, "jti": secrets.token_hex(4)}
    return bearer("oauth-id-jag+jwt", sub="alice", groups=["default"], **{**own, **claims})


async def test_an_identity_assertion_is_presented_once_by_the_client_that_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with around(tmp_path, monkeypatch, takes_id_jag=True, exchange="jwt_bearer") as (server, front, _):
        client = await front.connect(modern=True, headers=id_jag(server))
        for _ in range(2):
            assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}
        (form,) = server.presented
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert (form["client_id"], server.proofs[-1] is not None) == ("hub", True)
        server.revoke("alice-there", also_refresh=True)
        error = await client.error("tools/call", CALL)
        assert "assertion is good once" in error["message"]
        assert len(server.presented) == 1
        client = await front.connect(modern=True, headers=id_jag(server))
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice-there"}


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"client_id": "another"}, "not for the client 'hub'"),
        ({"client_id": None}, "not for the client 'hub'"),
        ({"resource": "https://mcp.example.com"}, "see its `resource`"),
    ],
)
async def test_an_identity_assertion_for_somebody_else_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claims: dict[str, Any], words: str
) -> None:
    async with around(tmp_path, monkeypatch, takes_id_jag=True, exchange="jwt_bearer") as (server, front, _):
        client = await front.connect(modern=True, headers=id_jag(server, **claims))
        assert words in (await client.error("tools/call", CALL))["message"]
        assert (server.presented, server.calls) == ([], {})


def test_an_identity_assertion_is_for_one_authorization_server() -> None:
    ours = "https://login.example.com"
    for aud in ("https://other.example.com", [ours, "https://other.example.com"], None, 7):
        with pytest.raises(ClientRefused, match="`aud`"):
            require_ours(token("oauth-id-jag+jwt", aud=aud, client_id="hub"), ours, "hub", None)
    for aud in (ours, [ours]):
        require_ours(token("oauth-id-jag+jwt", aud=aud, client_id="hub"), ours, "hub", "https://mcp.example.com")
    kinds = ("oauth-id-jag+jwt", "application/oauth-id-jag+jwt", "JWT", None)
    assert [is_id_jag(token(kind)) for kind in kinds] == [True, True, False, False]
    assert not is_id_jag("no token")


@pytest.mark.parametrize("lacking", ["issuer", "client_id"])
def test_callers_tokens_go_nowhere_that_a_server_chooses(lacking: str) -> None:
    oauth = {"account": "exchange", "client_id": "c", "issuer": "https://login.example.com"}
    del oauth[lacking]
    with pytest.raises(ConfigError, match=f"`{lacking}` for `exchange`"):
        load_settings(servers={"crm": {"oauth": oauth}})
