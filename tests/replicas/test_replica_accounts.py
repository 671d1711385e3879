"""Accounts of callers at several replicas, which share one Redis."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.account_server import AccountServer, account_server
from support.credentials import Credentials
from support.harness import config
from support.redis_server import RedisServer, needs_redis
from support.serving import Served, served
from support.wire import PATIENCE

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.oauth.account import LoginAccount, keep, kept_accounts
from fastmcp_aggregator.oauth.tokens import Tokens
from fastmcp_aggregator.oauth.web import HttpAnswer
from fastmcp_aggregator.replicas.redis_vault import RedisVault
from fastmcp_aggregator.settings.oauth import OAuthSettings

pytestmark = [pytest.mark.replicas, needs_redis]
SECRET = "a secret of thirty-two characters"
CALL = {"name": "crm:whoami", "arguments": {}}


async def replicas(
    stack: AsyncExitStack, server: AccountServer, redis: RedisServer, credentials: Credentials, number: int
) -> list[Served]:
    """The fronts of a hub, whose address is that of the first."""
    listeners = [listening_socket("127.0.0.1", 0) for _ in range(number)]
    client = {"grant": "client_credentials", "client_id": "hub", "client_secret_env": "CLIENT_SECRET"}
    own = {"account": "caller", "lists": "hub", **client}
    fronts = []
    for listener in listeners:
        app = build_aggregator(
            config(crm={"url": server.url}),
            servers={"crm": {"oauth": {**own, "issuer": server.issuer}}},
            auth=credentials.auth,
            public_url=url_of(listeners[0], "127.0.0.1"),
            redis_url=redis.url,
            redis_key=SECRET,
        )
        fronts.append(await stack.enter_async_context(served(app, listener=listener)))
    return fronts


async def log_in(address: str, key: str, who: str, ends_at: str) -> httpx2.Response:
    """In a browser that a load balancer sends to another replica when it comes back."""
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
        form = re.search(r'name="form" value="([^"]+)"', (await http.get(address)).text)
        assert form is not None
        sent = await http.post(address, data={"form": form[1], "credential": key})
        back = httpx2.URL((await http.get(f"{sent.headers['location']}&login_as={who}")).headers["location"])
        cookies = "; ".join(f"{name}={value}" for name, value in http.cookies.items())
        return await http.get(f"{ends_at}{back.raw_path.decode()}", headers={"cookie": cookies})


async def test_a_login_begins_at_one_replica_and_ends_at_another_and_one_renews(
    tmp_path: Path, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "s3cret")
    credentials = Credentials(tmp_path, {"alice": None})
    async with account_server() as server, AsyncExitStack() as stack:
        fronts = await replicas(stack, server, redis, credentials, 4)
        capabilities = {"elicitation": {"url": {}}}
        clients = [
            await front.connect(modern=True, headers=credentials.of("alice"), capabilities=capabilities)
            for front in fronts
        ]
        asked: dict[str, Any] = await clients[1].result("tools/call", CALL)
        back = {"requestState": asked["requestState"], "inputResponses": {"login": {"action": "accept"}}}
        _, answer = clients[2].begin("tools/call", {**CALL, **back})
        page = await log_in(
            asked["inputRequests"]["login"]["params"]["url"],
            credentials.keys["alice"],
            "alice-there",
            fronts[3].origin,
        )
        assert (page.status_code, "Logged in" in page.text) == (200, True)
        assert (await answer)["result"]["structuredContent"] == {"who": "alice-there"}
        for _ in range(3):
            server.revoke("alice-there", also_refresh=False)
            calls = [client.result("tools/call", CALL) for client in clients]
            found = [result["structuredContent"] for result in await asyncio.gather(*calls)]
            assert found == [{"who": "alice-there"}] * 4
        assert server.grants["refresh_token"] == 3
        assert server.grants["refused"] == 0
    (account,) = await kept_accounts(RedisVault(redis.url, SECRET))
    assert account.principal == "key:alice"


LIFETIME = 4 * 3600
"""Seconds."""


class RotatingEndpoint:
    """Takes each refresh token once, and none again."""

    def __init__(self) -> None:
        self.number = 0
        self.refused = 0

    async def posted(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> HttpAnswer:
        if form["refresh_token"] != f"refresh-{self.number}":
            self.refused += 1
            return HttpAnswer(400, httpx2.Headers(), b'{"error": "invalid_grant"}')
        self.number += 1
        told = {"access_token": f"access-{self.number}", "refresh_token": f"refresh-{self.number}"}
        answer = {"token_type": "Bearer", "expires_in": LIFETIME, **told}
        return HttpAnswer(200, httpx2.Headers(), json.dumps(answer).encode())


@pytest.mark.no_cover
async def test_thirty_days_of_four_replicas_cost_no_login(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them need the next token at once, every four hours of a clock that jumps; Redis has its own."""
    now, endpoint = 1_000_000.0, RotatingEndpoint()
    for module in ("account", "tokens"):
        monkeypatch.setattr(f"fastmcp_aggregator.oauth.{module}.time.time", lambda: now)
    monkeypatch.setattr("fastmcp_aggregator.oauth.grants.posted", endpoint.posted)
    vaults = [RedisVault(redis.url, SECRET, poll=0.002) for _ in range(4)]
    url = "https://mcp.example.com/mcp"
    given = {"access_token": "access-0", "token_type": "Bearer", "refresh_token": "refresh-0", "expires_in": LIFETIME}
    tokens = Tokens.model_validate(
        {
            "url": url,
            "issuer": "https://login.example.com",
            "resource": url,
            "token_endpoint": "https://login.example.com/token",
            "client": {"client_id": "c", "redirect_uris": ["http://localhost/"]},
            "tokens": given,
            "obtained_at": now,
            "expires_at": now + LIFETIME,
        }
    )
    await keep(vaults[0], tokens)
    accounts = [LoginAccount(vault, url, OAuthSettings()) for vault in vaults]
    for number in range(1, 30 * 24 * 3600 // LIFETIME + 1):
        now += LIFETIME
        found = await asyncio.gather(*(account.authorization() for account in accounts))
        assert set(found) == {f"Bearer access-{number}"}
    assert (endpoint.number, endpoint.refused) == (180, 0)
    assert {account.why_login_needed for account in accounts} == {None}
    (kept,) = await kept_accounts(vaults[3])
    assert (kept.is_refused, kept.renewals_begun) == (False, 0)
    await asyncio.gather(*(vault.aclose() for vault in vaults))
