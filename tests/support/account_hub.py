"""A hub in front of servers at which each caller has an account of its own, and the browsers of these callers."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.oauth.account import keep, kept_accounts
from fastmcp_aggregator.oauth.tokens import HUB, Tokens
from fastmcp_aggregator.oauth.vault.vault import FileVault
from support.account_server import AccountServer, account_server
from support.credentials import Credentials
from support.harness import config
from support.serving import Served, served
from support.wire import PATIENCE
from support.wire_http import HttpClient

CALL = {"name": "crm:whoami", "arguments": {}}
PEOPLE = ("alice", "bob", "carol")


@dataclass
class Around:
    """A hub in front of servers with accounts."""

    servers: Sequence[AccountServer]
    app: Aggregator
    front: Served
    credentials: Credentials
    vault: FileVault

    @property
    def server(self) -> AccountServer:
        return self.servers[0]

    async def client(self, who: str, *, modern: bool = False, can_be_asked: bool = True) -> HttpClient:
        modes = {"form": {}, "url": {}} if can_be_asked else {"form": {}}
        headers = self.credentials.of(who)
        return await self.front.connect(modern=modern, headers=headers, capabilities={"elicitation": modes})

    async def tokens_of(self, principal: str) -> Tokens:
        (found,) = [each for each in await kept_accounts(self.vault) if each.principal == principal]
        return found


async def give(vault: FileVault, server: AccountServer, principal: str, who: str) -> None:
    """Let a principal be logged in."""
    await keep(
        vault,
        Tokens(
            principal=principal,
            url=server.url,
            issuer=server.issuer,
            resource=server.url,
            token_endpoint=f"{server.origin}/token",
            revocation_endpoint=f"{server.origin}/revoke",
            client=OAuthClientInformationFull(client_id="c", redirect_uris=None),
            tokens=OAuthToken.model_validate(server.issued(who)),
            obtained_at=time.time(),
            logged_in_at=time.time(),
            expires_at=time.time() + 3600,
        ),
    )


@asynccontextmanager
async def around(
    folder: Path,
    *,
    servers: int = 1,
    people: Sequence[str] = PEOPLE,
    lists: str = "hub",
    url: str | None = None,
    roles: Any = None,
    keys_of: Any = None,
    **settings: Any,
) -> AsyncIterator[Around]:
    """`lists` is whose account the servers list with; the hub has one where it is the hub's. `url` is that of a server
    that takes the tokens of the first. `roles` and `keys_of` are roles and groups of people, where these are not the
    usual ones.
    """
    async with AsyncExitStack() as stack:
        found = [await stack.enter_async_context(account_server()) for _ in range(servers)]
        for server in found[:1]:
            server.url = url or server.url
        keys = ["crm", *(f"crm{number}" for number in range(1, servers))][:servers]
        credentials = Credentials(folder, {**dict.fromkeys(people), **(keys_of or {})}, roles or {})
        vault = FileVault(folder / "tokens")
        for server in found if lists == "hub" else ():
            await give(vault, server, HUB, "the-hub")
        listener = listening_socket("127.0.0.1", 0)
        app = build_aggregator(
            config(**{key: {"url": server.url} for key, server in zip(keys, found, strict=True)}),
            servers={key: {"oauth": {"account": "caller", "lists": lists}} for key in keys},
            oauth_dir=str(folder / "tokens"),
            public_url=url_of(listener, "127.0.0.1"),
            auth=credentials.auth,
            **settings,
        )
        front = await stack.enter_async_context(served(app, listener=listener))
        yield Around(found, app, front, credentials, vault)


class Browser:
    """A browser, with its cookies. It goes to the authorization server as somebody."""

    def __init__(self) -> None:
        self.http = httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, verify=False)

    async def log_in(self, address: str, key: str, who: str | None) -> httpx2.Response:
        """From the hub's page to its end."""
        sent = await self.authenticate(address, key)
        return sent if sent.status_code != 303 else await self.come_back(sent.headers["location"], who)

    async def authenticate(self, address: str, key: str, **headers: str) -> httpx2.Response:
        shown = await self.http.get(address)
        form = re.search(r'name="form" value="([^"]+)"', shown.text)
        if form is None:
            return shown
        return await self.http.post(address, data={"form": form[1], "credential": key}, headers=headers)

    async def come_back(self, address: str, who: str | None) -> httpx2.Response:
        answer = await self.http.get(f"{address}&login_as={who}" if who else address)
        return await self.http.get(answer.headers["location"])


async def mixed_up(place: Around, victim: str, attacker: str, *, comes_back_to: str) -> httpx2.Response:
    """The mix-up of RFC 9700, section 4.4: where a browser ends whose login at the last server, which is hostile, is
    sent on to the first. It is to come back to the address for the "honest" or the "hostile" one.
    """
    honest, hostile = place.servers[0], place.servers[-1]
    honest.says_who = hostile.says_who = False

    async def begun(who: str, server: AccountServer) -> tuple[Browser, str]:
        browser, headers = Browser(), place.credentials.of(who)
        sites = (await browser.http.get(f"{place.front.origin}/accounts/mine", headers=headers)).json()
        key = [site["server"] for site in sites][list(place.servers).index(server)]
        begins = await browser.http.post(f"{place.front.origin}/accounts/mine/{key}", headers=headers)
        return browser, begins.json()["address"]

    # Who attacks knows the hub's client at the honest server, and its redirect address, from a login of its own.
    known = dict(httpx2.URL((await begun(attacker, honest))[1]).params)

    def sent_on(asked: dict[str, str]) -> str:
        redirect = (known if comes_back_to == "honest" else asked)["redirect_uri"]
        more = {"client_id": known["client_id"], "redirect_uri": redirect, "login_as": victim}
        return str(httpx2.URL(f"{honest.origin}/authorize", params={**asked, **more}))

    hostile.sends_on = sent_on
    browser, address = await begun(victim, hostile)
    return await browser.http.get(address, follow_redirects=True)


def key_of(place: Around, who: str) -> str:
    return place.credentials.of(who)["authorization"].removeprefix("Bearer ")


async def log_in(place: Around, address: str, who: str, account: str | None = None) -> httpx2.Response:
    return await Browser().log_in(address, key_of(place, who), account or f"{who}-there")


async def asked(client: HttpClient, message: Any = None) -> dict[str, Any]:
    """What a modern client is to do before its call is made."""
    result: dict[str, Any] = await client.result("tools/call", message or CALL)
    assert result["resultType"] == "input_required"
    return result


def retried(result: dict[str, Any], action: str = "accept") -> dict[str, Any]:
    return {**CALL, "requestState": result["requestState"], "inputResponses": {"login": {"action": action}}}


def address_in(result: dict[str, Any]) -> str:
    params = result["inputRequests"]["login"]["params"]
    assert params["mode"] == "url"
    address: str = params["url"]
    return address
