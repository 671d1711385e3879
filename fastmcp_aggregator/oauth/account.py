"""One account at one server: its access token for each request, renewed in one place at a time, without a person.

Theory. A refresh token may be good for one time only, and presenting it twice may end the login. So of all tasks,
processes and replicas one renews: the tasks of a process wait for one task, which holds the vault's lock over its look
at what is kept, the request and the write. Who comes after finds other tokens there and uses those. That task is not
cancelled with who waits for it, or an answer with the only good refresh token would be lost. Before it asks, it keeps
that it does: where that cannot be written, no answer could be kept, and who finds it knows that a process was ended
meanwhile and the refresh token may be spent; it is tried once more. One that was refused is marked in the vault, and
not tried again. What is kept is looked at again from time to time, so that a new login,
or a revocation, is noticed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from abc import ABC, abstractmethod
from contextlib import suppress

from mcp.client.auth.utils import issuers_match, union_scopes
from mcp.shared.auth import OAuthToken
from pydantic import ValidationError

from fastmcp_aggregator.children.http.failures import AUTH_PAUSE
from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.oauth.clients import known_client
from fastmcp_aggregator.oauth.discovery import Provider, discovered
from fastmcp_aggregator.oauth.errors import ClientRefused, LoginRequired, OAuthError
from fastmcp_aggregator.oauth.grants import Grants
from fastmcp_aggregator.oauth.id_jag import is_id_jag, require_ours
from fastmcp_aggregator.oauth.tokens import HUB, Tokens, expiry, name_of
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import SERVERS, TOKENS, Vault
from fastmcp_aggregator.settings.oauth import OAuthSettings

logger = logging.getLogger(__name__)

_SHOWN = 200
_LONGEST_SCOPES = 2000
_MOST_BEGUN = 2
"""Renewals that may have been ended with their process before the refresh token is not presented any more."""
_LOST = "a program was ended while it renewed its login, which is lost with it"


class Account(ABC):
    """The tokens of one principal at one server."""

    def __init__(self) -> None:
        self.tokens: Tokens | None = None
        self.why_login_needed: str | None = None
        """Why a person has to log in; None: none has to, as far as is known."""
        self.why_refused: str | None = None
        """Why there are no tokens, since the last attempt to get some."""
        self._renewal: asyncio.Task[None] | None = None

    async def authorization(self) -> str:
        """The header's value for the next request. Raises HttpFailed: there are no tokens that can be used."""
        if self.tokens is None or not self.tokens.are_good(time.time()):
            await self._renewed(refused=None)
        elif self._is_old:
            await self._look()
        if self.tokens is None:  # forgotten just then
            await self._renewed(refused=None)
        return self._header()

    async def renewed(self, refused: str) -> str:
        """The header's value in place of one that the server has refused.

        Raises:
            HttpFailed: there are no other tokens.
        """
        await self._renewed(refused)
        header = self._header()
        if header == refused:
            raise self._failed(LoginRequired("it does not take the tokens of its own authorization server"))
        return header

    async def widened(self, refused: str, scopes: str | None) -> str:
        """The tokens of a login meanwhile, if there was one; else the next login asks for these scopes too."""
        named = f": {printable(scopes)[:_SHOWN]}" if scopes else ""
        raise self._failed(ClientRefused(f"it wants more scopes than its settings ask for{named}; add them"))

    def forget(self) -> None:
        """Drop the tokens in memory: the stored ones are newer."""
        self.tokens = None

    async def settled(self) -> None:
        """Wait for a renewal that is under way."""
        if self._renewal is not None:
            await asyncio.gather(self._renewal, return_exceptions=True)

    @property
    def _is_old(self) -> bool:
        return False

    async def _look(self) -> None:  # noqa: B027 - most keep nothing
        """Re-read the stored tokens."""

    @abstractmethod
    async def _renew(self, refused: str | None) -> None:
        """Have other tokens than those that were refused.

        Raises:
            OAuthError, VaultError: there are none.
        """

    def _header(self) -> str:
        if self.tokens is None:
            raise self._failed(LoginRequired("its login has just ended"))
        return f"Bearer {self.tokens.tokens.access_token}"

    async def _renewed(self, refused: str | None) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(refused), name="oauth renewal")
            self._renewal.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.shield(self._renewal)
        except (OAuthError, VaultError) as error:
            self.why_refused = str(error)
            if isinstance(error, LoginRequired):
                self.tokens = None
            raise self._failed(error) from None
        self.why_login_needed = self.why_refused = None

    def _failed(self, error: OAuthError | VaultError) -> HttpFailed:
        if isinstance(error, LoginRequired):
            self.why_login_needed = str(error)
            return HttpFailed(HttpFailure("login", f"{error}; {self.how_to_log_in}", AUTH_PAUSE))
        kind = "auth" if isinstance(error, ClientRefused | VaultError) else "status"
        return HttpFailed(HttpFailure(kind, str(error), AUTH_PAUSE))  # type: ignore[arg-type]

    @property
    def how_to_log_in(self) -> str:
        """How to mend a missing login."""
        return "run `fastmcp-aggregator login CONFIG SERVER`"


class LoginAccount(Account):
    """An account that a person has logged in to."""

    def __init__(
        self, vault: Vault, url: str, settings: OAuthSettings, principal: str = HUB, *, look_interval: float = 5.0
    ) -> None:
        """`look_interval` is the seconds after which the vault is looked at again."""
        super().__init__()
        self._look_interval = look_interval
        self._vault = vault
        self._url = url
        self._settings = settings
        self._principal = principal
        self._looked_at = 0.0

    async def widened(self, refused: str, scopes: str | None) -> str:
        """The tokens of a login meanwhile, if there was one; else the next login asks for these scopes too."""
        named = printable(scopes)[:_SHOWN] if scopes else "more scopes"
        found = self.tokens
        with suppress(OAuthError, VaultError):
            async with self._vault.locked(TOKENS, found.name if found is not None else ""):
                found = await self._kept()
                if self._is_other(found, refused):
                    self.tokens = found
                    return self._header()
                wanted = union_scopes(union_scopes(found.tokens.scope, found.wanted_scopes), scopes)
                if wanted != found.wanted_scopes and len(wanted or "") < _LONGEST_SCOPES:
                    await keep(self._vault, found.model_copy(update={"wanted_scopes": wanted}))
        raise self._failed(LoginRequired(f"its login does not allow this call: it wants {named}"))

    @property
    def how_to_log_in(self) -> str:
        return super().how_to_log_in if self._principal == HUB else "log in to it with an account of your own"

    @property
    def _is_old(self) -> bool:
        return time.monotonic() - self._looked_at > self._look_interval

    async def _look(self) -> None:
        before = self.tokens
        try:
            self.tokens = await self._kept()
            if self.tokens != before:
                self.why_login_needed = None  # somebody has logged in
        except LoginRequired as error:
            self.tokens = None
            raise self._failed(error) from None
        except VaultError as error:
            logger.warning("cannot read the stored tokens, the present ones stay in use: %s", error)
            self._looked_at = time.monotonic()
        if not self.tokens or not self.tokens.are_good(time.time()):
            await self._renewed(refused=None)

    async def _renew(self, refused: str | None) -> None:
        found = await self._kept()
        if self._is_other(found, refused):
            self.tokens = found
            return
        async with self._vault.locked(TOKENS, found.name):
            found = await self._kept()
            if self._is_other(found, refused):
                self.tokens = found
                return
            self.tokens = await self._refreshed(found)

    def _is_other(self, found: Tokens, refused: str | None) -> bool:
        """True if the stored tokens are newer than the refused one: renewed by another process, or a new login."""
        return found.are_good(time.time()) and refused != f"Bearer {found.tokens.access_token}"

    async def _refreshed(self, found: Tokens) -> Tokens:
        begun, token = found.renewals_begun, found.tokens.refresh_token
        if token is None or found.is_refused or begun >= _MOST_BEGUN:
            raise LoginRequired(_LOST if begun else "its login has expired or was revoked")
        await keep(self._vault, found.model_copy(update={"renewals_begun": begun + 1}))
        grants = Grants(found.token_endpoint, found.issuer, found.client, self._settings)
        try:
            new = found.renewed(await grants.refresh(token, found.resource))
        except LoginRequired as error:
            await keep(self._vault, found.model_copy(update={"is_refused": True}))
            raise (LoginRequired(_LOST) if begun else error) from None
        except OAuthError:
            await keep(self._vault, found)
            raise
        await keep(self._vault, new)
        return new

    async def _kept(self) -> Tokens:
        """The stored tokens.

        Raises:
            LoginRequired: there are none.
            VaultError: they cannot be read.
        """
        self._looked_at = time.monotonic()
        found = await kept_tokens(self._vault, self._url, self._principal)
        if found is None:
            raise LoginRequired("nobody has logged in to it")
        if not issuers_match(found.issuer, self._settings.issuer or found.issuer):
            raise LoginRequired("its login is at another authorization server than `issuer` in its settings")
        return found


class ClientAccount(Account):
    """The account of a client that proves itself, without a login."""

    def __init__(self, url: str, settings: OAuthSettings, principal: str = HUB) -> None:
        super().__init__()
        self._url = url
        self._settings = settings
        self._principal = principal

    async def _granted(self, grants: Grants, provider: Provider) -> OAuthToken:
        return await grants.client_credentials(provider.scopes, provider.resource)

    async def _renew(self, refused: str | None) -> None:
        if self.tokens is not None and self.tokens.are_good(time.time()) and self._header() != refused:
            return
        provider = await discovered(self._url, self._settings)
        client = known_client(provider, self._settings, None)
        grants = Grants(provider.token_endpoint, provider.issuer, client, self._settings)
        now = time.time()
        token = await self._granted(grants, provider)
        self.tokens = Tokens(
            principal=self._principal,
            url=self._url,
            issuer=provider.issuer,
            resource=provider.resource,
            token_endpoint=provider.token_endpoint,
            client=client,
            tokens=token,
            obtained_at=now,
            expires_at=expiry(token, now),
        )


class ExchangeAccount(ClientAccount):
    """The account of a caller, for which the token is exchanged with which it has authenticated here. Only in memory:
    it is got anew with the caller's next token.
    """

    _offered: str | None = None
    _presented: tuple[str, str] | None = None
    """The identity assertion that was answered last, and why it is not presented again."""

    def offer(self, token: str) -> None:
        """The caller's own token, which was verified; it goes to the issuer of the settings alone."""
        self._offered = token

    async def _granted(self, grants: Grants, provider: Provider) -> OAuthToken:
        if self._offered is None:
            raise ClientRefused("it is called with tokens of its callers, and this one has none")
        if self._settings.exchange == "token_exchange":
            token = await grants.exchange(self._offered, provider.scopes, provider.resource)
        elif is_id_jag(self._offered):
            token = await self._once(self._offered, grants, provider)
        else:
            token = await grants.assertion(self._offered, provider.scopes, provider.resource)
        return token.model_copy(update={"refresh_token": None})  # the caller's own token is what renews it

    async def _once(self, assertion: str, grants: Grants, provider: Provider) -> OAuthToken:
        """The token for an identity assertion, which is good once: it is tried again only if no answer came.

        Raises:
            ClientRefused: it is for somebody else, or was answered already.
            OAuthError: there is none.
        """
        require_ours(assertion, provider.issuer, self._settings.client_id or "", provider.resource)
        if self._presented is not None and self._presented[0] == assertion:
            raise ClientRefused(self._presented[1])
        try:
            token = await grants.assertion(assertion, provider.scopes, provider.resource)
        except ClientRefused as error:
            self._presented = assertion, str(error)
            raise
        self._presented = assertion, "the caller's assertion is good once, and the token that it brought has ended"
        return token


async def keep(vault: Vault, tokens: Tokens) -> None:
    """Keep an account's tokens, where `kept_tokens` finds them. Raises VaultError: that is not possible."""
    await vault.keep(TOKENS, tokens.name, tokens.model_dump_json(exclude_none=True).encode())
    where = json.dumps({"issuer": tokens.issuer, "resource": tokens.resource or tokens.url}).encode()
    server = f"{tokens.principal}\n{tokens.url}"
    with suppress(VaultError):  # an unreadable document is replaced
        if await vault.read(SERVERS, server) == where:
            return
    await vault.keep(SERVERS, server, where)


async def kept_tokens(vault: Vault, url: str, principal: str) -> Tokens | None:
    """An account's tokens at the server at `url`. Raises VaultError: they cannot be read."""
    where = await vault.read(SERVERS, f"{principal}\n{url}")
    if where is None:
        return None
    try:
        known = json.loads(where)
        document = await vault.read(TOKENS, name_of(principal, known["issuer"], known["resource"]))
        return None if document is None else Tokens.model_validate_json(document)
    except (ValidationError, ValueError, KeyError, TypeError):
        raise VaultError("its tokens were kept by another version; log in again") from None


async def wanted_scopes(vault: Vault, url: str, principal: str) -> str | None:
    """The scopes that the next login of an account is to ask for besides; a login that cannot be read wants none."""
    with suppress(VaultError):
        kept = await kept_tokens(vault, url, principal)
        return kept.wanted_scopes if kept is not None else None
    return None


async def kept_accounts(vault: Vault) -> list[Tokens]:
    """Every account that is kept. Raises VaultError: the vault cannot be read."""
    found = []
    for document in await vault.all(TOKENS):
        try:
            found.append(Tokens.model_validate_json(document))
        except ValidationError:
            continue
    return sorted(found, key=lambda each: (each.url, each.principal))
