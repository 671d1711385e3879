"""ID-JAG's second leg at an authorization server that others wrote: that of FastMCP, which is the MCP server, too."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth import IdentityAssertion, OAuthProxy
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token
from joserfc.jwk import RSAKey
from starlette.requests import Request
from starlette.responses import JSONResponse
from support.credentials import Credentials, bearer
from support.harness import PATIENCE, config
from support.serving import Served, served
from support.tokens import ISSUER, PAIR

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.access.listening import listening_socket, url_of

CALL = {"name": "crm:whoami", "arguments": {}}


@dataclass
class Stage:
    """A hub in front of such a server, where it is the client `client_id`."""

    origin: str
    client_id: str
    front: Served
    granted: list[int]
    """The statuses with which assertions were answered."""

    def assertion(self, **claims: Any) -> dict[str, str]:
        """The header with an identity assertion."""
        own = {"aud": f"{self.origin}/", "client_id": self.client_id, "resource": f"{self.origin}/mcp"}
        more = {"jti": secrets.token_hex(4), "sub": "alice", "groups": ["default"], "exp": int(time.time()) + 240}
        return bearer("oauth-id-jag+jwt", **{**own, **more, **claims})


@asynccontextmanager
async def stage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    listener = listening_socket("127.0.0.1", 0)
    origin = url_of(listener, "127.0.0.1")
    proxy = OAuthProxy(
        upstream_authorization_endpoint="https://login.example.com/authorize",
        upstream_token_endpoint="https://login.example.com/token",
        upstream_client_id="upstream",
        upstream_client_secret="of nobody",
        token_verifier=JWTVerifier(public_key=PAIR.public_key, issuer=ISSUER),
        base_url=origin,
        jwt_signing_key="signs the tokens of this server",
        identity_assertion=IdentityAssertion(trusted_issuers=[ISSUER], jwks_uris={ISSUER: f"{origin}/jwks"}),
    )
    app: FastMCP[Any] = FastMCP("crm", auth=proxy)

    @app.tool
    def whoami() -> dict[str, Any]:
        token = get_access_token()
        return {"who": token.claims.get("sub") if token else None}

    @app.custom_route("/jwks", methods=["GET"])
    async def jwks(_: Request) -> JSONResponse:
        return JSONResponse({"keys": [RSAKey.import_key(PAIR.public_key).as_dict(private=False)]})

    granted: list[int] = []
    exchange = proxy.exchange_identity_assertion

    async def counted(*arguments: Any) -> Any:
        granted.append(400)
        token = await exchange(*arguments)
        granted[-1] = 200
        return token

    monkeypatch.setattr(proxy, "exchange_identity_assertion", counted)
    async with served(app, listener=listener):
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
            client = (
                await http.post(f"{origin}/register", json={"redirect_uris": ["http://localhost/callback"]})
            ).json()
        credentials = Credentials(folder, {})
        credentials.settings["jwt_audience"] = f"{origin}/"
        oauth = {
            "account": "exchange",
            "exchange": "jwt_bearer",
            "client_id": client["client_id"],
            "issuer": f"{origin}/",
        }
        hub = build_aggregator(
            config(crm={"url": f"{origin}/mcp"}), servers={"crm": {"oauth": oauth}}, auth=credentials.auth
        )
        async with served(hub) as front:
            yield Stage(origin, client["client_id"], front, granted)


@pytest.mark.parametrize("modern", [True, False])
async def test_a_caller_is_called_for_with_its_identity_assertion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modern: bool
) -> None:
    async with stage(tmp_path, monkeypatch) as here:
        for who in ("alice", "bob"):
            client = await here.front.connect(modern=modern, headers=here.assertion(sub=who))
            for _ in range(3):
                assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": who}
        assert here.granted == [200, 200]


async def test_an_assertion_that_the_server_has_taken_already_is_refused_there_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path, monkeypatch) as here:
        spent = here.assertion(jti="once")
        client = await here.front.connect(modern=True, headers=spent)
        assert (await client.result("tools/call", CALL))["structuredContent"] == {"who": "alice"}
        client = await here.front.connect(modern=True, headers=here.assertion(jti="once", sub="bob"))
        for _ in range(2):
            error = await client.error("tools/call", CALL)
            assert "refuses what was presented" in error["message"], error
        assert here.granted == [200, 400]
