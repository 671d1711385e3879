"""Logins of callers: each begun for one principal at one server, and finished in a browser that is proved to be theirs.

Theory. Who calls a server without an account there is given an address of the hub. Anybody may be sent there, so who
opens it has to authenticate as the principal for which it was made; only then is the browser sent on, with a cookie
that ties its return to this very login. So a link that is handed to somebody else links nothing: neither can its maker
get the other's account, nor the other the maker's. Browsers come back to another address from each issuer, so that no
server gets what is another's (see `authorization`). What a login needs is kept in the vault, because the browser may
come back to another replica. An answer of an authorization server is good once, and one that came through another
browser is refused: else the maker of a login could have somebody else log in, and use the address at which they ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from mcp.shared.auth import OAuthClientInformationFull
from pydantic import BaseModel, ConfigDict, ValidationError

from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.oauth.account import keep, kept_tokens, wanted_scopes
from fastmcp_aggregator.oauth.accounts import Accounts
from fastmcp_aggregator.oauth.authorization import (
    Authorization,
    AuthorizationResponse,
    MixedUpError,
    Refused,
    redirect_uri,
)
from fastmcp_aggregator.oauth.clients import client_for
from fastmcp_aggregator.oauth.discovery import Provider, discovered
from fastmcp_aggregator.oauth.errors import OAuthError
from fastmcp_aggregator.oauth.tokens import Tokens
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import CLIENTS, LOGINS
from fastmcp_aggregator.settings.oauth import OAuthSettings

LOGIN_LIFETIME = 600.0
"""Seconds that a person has from the first call to the end of the login."""
_CLIENT_LIFE = 86_400.0
"""Seconds for which a client that has registered itself is used for new logins."""
PATH = "/accounts"
_MOST = 10_000
"""Logins that are remembered here, so that a second call gets the same address."""
_MOST_SPENT = 8
"""Codes that wrong browsers may bring for one login, before it is over."""
_LOOK_INTERVAL = 1.0
"""Seconds between looks whether a login is finished, which may be at another replica."""


@dataclass(frozen=True, slots=True)
class Site:
    """A server at which callers have accounts."""

    key: str
    url: str
    settings: OAuthSettings


class Login(BaseModel):
    """A login that a principal was asked for. `refused` says how it ended without tokens."""

    id: str
    principal: str
    server: str
    begun_at: float
    refused: str | None = None


class _Return(BaseModel):
    """An awaited response of an authorization server: the login, and its browser."""

    model_config = ConfigDict(defer_build=True)

    login: Login
    authorization: Authorization
    browser: str


@dataclass(frozen=True, slots=True)
class Redirect:
    """The address for a browser, and the cookie that it is to bring back: each login has one of its own, so that
    several may go on in one browser.
    """

    address: str
    cookie: str
    secret: str = field(repr=False)


class WrongBrowserError(OAuthError):
    """The browser is not that of the principal whose login it is."""


class LoginOverError(OAuthError):
    """There is no such login, or it is over."""


class Logins:
    """The logins of one hub, whose address is `public_url`."""

    def __init__(self, accounts: Accounts, public_url: str) -> None:
        self._accounts = accounts
        self._public_url = public_url.rstrip("/")
        self._begun: dict[tuple[str, str], Login] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._finished = asyncio.Event()

    @property
    def callback(self) -> str:
        """The prefix of the redirect URIs."""
        return callback_of(self._public_url)

    def address(self, login: Login) -> str:
        """The address that a person opens."""
        return f"{self._public_url}{PATH}/login/{login.id}"

    async def begin(self, principal: str, server: str) -> Login:
        """The login of a principal at a server; the one that has begun, if there is one.

        Raises:
            VaultError: it cannot be kept.
        """
        lock = self._locks.setdefault((principal, server), asyncio.Lock())
        async with lock:
            known = self._begun.get((principal, server))
            now = time.time()
            if known is not None and now - known.begun_at < LOGIN_LIFETIME / 2:
                found = await self.known(known.id)
                if found is not None and found.refused is None:
                    return found
            login = Login(id=secrets.token_urlsafe(24), principal=principal, server=server, begun_at=now)
            await self._keep(login)
            self._begun.pop((principal, server), None)
            while len(self._begun) >= _MOST:
                self._begun.pop(next(iter(self._begun)))
            self._begun[principal, server] = login
            return login

    def ends(self, login: Login) -> bool:
        """Forget a login that is finished; whether it was still known."""
        return self._begun.pop((login.principal, login.server), None) is not None

    async def known(self, login_id: str) -> Login | None:
        """A login that is not finished; it may have been refused. Raises VaultError: the vault cannot be read."""
        document = await self._accounts.vault.read(LOGINS, login_id)
        try:
            return None if document is None else Login.model_validate_json(document)
        except ValidationError:
            return None

    async def found(self, login_id: str) -> Login:
        """Find a login by its id. Raises: LoginOverError, VaultError."""
        login = await self.known(login_id)
        if login is None or login.refused is not None:
            raise LoginOverError("this login is over; call again, and open the new address")
        return login

    async def send(self, login: Login, principal: str, site: Site) -> Redirect:
        """The address of the authorization server for a browser that has authenticated as `principal`.

        Raises:
            WrongBrowserError: the login is another principal's.
            OAuthError, VaultError: it cannot be begun there.
        """
        if not secrets.compare_digest(principal.encode(), login.principal.encode()):
            raise WrongBrowserError("this login was started by another caller; nothing was linked")
        provider = await discovered(site.url, site.settings)
        provider.require_pkce()
        back = redirect_uri(self.callback, provider.issuer)
        client = await self._client(provider, site.settings, back)
        more = await wanted_scopes(self._accounts.vault, provider.url, principal)
        authorization = Authorization.begun(provider, client, back, site.settings, more)
        browser = secrets.token_urlsafe(32)
        awaited = _Return(login=login, authorization=authorization, browser=_digest(browser))
        await self._accounts.vault.keep(
            LOGINS, f"state {authorization.state}", awaited.model_dump_json().encode(), lifetime=LOGIN_LIFETIME
        )
        return Redirect(authorization.address, cookie_of(authorization.state), browser)

    async def finish(
        self, response: AuthorizationResponse, browser: str, settings_of: Mapping[str, OAuthSettings]
    ) -> tuple[Login, Tokens]:
        """The tokens of a login whose browser is back, with what the authorization server has sent by it and with its
        cookie; they are kept.

        Raises:
            MixedUpError: what it brings is another authorization server's.
            LoginOverError: nothing is awaited under this state, or not any more.
            WrongBrowserError: it is another browser than was sent, which may still come back.
            OAuthError, VaultError: there are no tokens.
        """
        vault, brought = self._accounts.vault, response.query
        state, code = brought.get("state", ""), _digest(brought.get("code", ""))
        name = f"state {state}"
        document = await vault.read(LOGINS, name)
        try:
            awaited = None if document is None else _Return.model_validate_json(document)
        except ValidationError:
            awaited = None
        if awaited is not None and not secrets.compare_digest(_digest(browser), awaited.browser):
            await self._spend(state, code)
            raise WrongBrowserError("this login was begun in another browser; nothing was linked")
        if awaited is None or awaited.login.server not in settings_of or await vault.take(LOGINS, name) is None:
            raise LoginOverError(
                "this login is not waiting for an answer any more; call again, and open the new address"
            )
        if code in await self._spent(state):
            raise WrongBrowserError("another browser has used this answer already; nothing was linked")
        login = awaited.login
        try:
            tokens = await awaited.authorization.finished(response, settings_of[login.server], login.principal)
        except OAuthError as error:
            await self._keep(login.model_copy(update={"refused": str(error)}))
            self._tell()
            if isinstance(error, MixedUpError):
                whose = printable(login.principal) or "the hub"
                raise MixedUpError(f"the login of {whose} to {login.server!r}: {error}") from None
            raise
        await keep(self._accounts.vault, tokens)
        await self._accounts.vault.remove(LOGINS, login.id)
        self._tell()
        return login, tokens

    async def until_finished(self, login: Login, url: str, seconds: float) -> bool:
        """Wait for the tokens of a login; whether they have come, within so many seconds.

        Raises:
            Refused: it ended without.
            VaultError: the vault cannot be read.
        """
        ends = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < ends:
            finished = self._finished
            tokens = await kept_tokens(self._accounts.vault, url, login.principal)
            if tokens is not None and tokens.obtained_at >= login.begun_at and not tokens.is_refused:
                return True
            found = await self.known(login.id)
            if found is None:
                return False
            if found.refused is not None:
                raise Refused(found.refused)
            try:
                async with asyncio.timeout(_LOOK_INTERVAL):
                    await finished.wait()
            except TimeoutError:
                continue
        return False

    async def _client(self, provider: Provider, settings: OAuthSettings, back: str) -> OAuthClientInformationFull:
        """The hub's client, which registers itself once for each server, and not for each person: what a person has
        agreed to for one server counts for no other that names the same issuer.
        """
        if settings.client_id is not None or (settings.client_metadata_url is not None and provider.takes_documents):
            return await client_for(provider, settings, back)
        vault, name = self._accounts.vault, f"{provider.issuer}\n{back}\n{provider.url}"
        async with vault.locked(CLIENTS, name):
            with suppress(ValidationError, VaultError):  # an unreadable document is replaced
                document = await vault.read(CLIENTS, name)
                if document is not None:
                    return OAuthClientInformationFull.model_validate_json(document)
            client = await client_for(provider, settings, back)
            await vault.keep(CLIENTS, name, client.model_dump_json(exclude_none=True).encode(), lifetime=_CLIENT_LIFE)
        return client

    async def _spend(self, state: str, code: str) -> None:
        """Let a code be of no use for a login, though the right browser bring it."""
        vault = self._accounts.vault
        async with vault.locked(LOGINS, "spent"):
            spent = await self._spent(state)
            if len(spent) >= _MOST_SPENT:
                await vault.remove(LOGINS, f"state {state}")
                return
            await vault.keep(LOGINS, f"spent {state}", " ".join({*spent, code}).encode(), lifetime=LOGIN_LIFETIME)

    async def _spent(self, state: str) -> list[str]:
        return (await self._accounts.vault.read(LOGINS, f"spent {state}") or b"").decode().split()

    async def _keep(self, login: Login) -> None:
        await self._accounts.vault.keep(LOGINS, login.id, login.model_dump_json().encode(), lifetime=LOGIN_LIFETIME)

    def _tell(self) -> None:
        finished, self._finished = self._finished, asyncio.Event()
        finished.set()


def callback_of(public_url: str) -> str:
    """The prefix of the redirect URIs of a hub."""
    return f"{public_url.rstrip('/')}{PATH}/callback"


def cookie_of(state: str) -> str:
    return f"fastmcp_aggregator_login_{_digest(state)[:16]}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
