"""The accounts of one aggregator: one for each principal and server, however many connections use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from weakref import WeakValueDictionary

from fastmcp_aggregator.oauth.account import Account, ClientAccount, ExchangeAccount, LoginAccount
from fastmcp_aggregator.oauth.tokens import HUB
from fastmcp_aggregator.oauth.vault.vault import Vault
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.oauth import OAuthSettings


class Accounts:
    """The accounts in one vault, which is opened when it is first needed."""

    def __init__(self, new_vault: Callable[[], Vault]) -> None:
        self._new_vault = new_vault
        self.look_interval = 5.0
        """Seconds after which the account of a login looks at the vault again."""
        self._accounts: WeakValueDictionary[tuple[str, str, OAuthSettings], Account] = WeakValueDictionary()

    @cached_property
    def vault(self) -> Vault:
        """The vault of the tokens."""
        return self._new_vault()

    def account(self, url: str, settings: OAuthSettings, principal: str = HUB) -> Account:
        """The account of a principal at an address, the same for all who ask while one of them has it."""
        found = self._accounts.get((principal, url, settings))
        if found is None:
            found = self._accounts[principal, url, settings] = self._new(url, settings, principal)
        return found

    async def settled(self) -> None:
        """Wait for the renewals that are under way, whose answers must not be lost."""
        await asyncio.gather(*(account.settled() for account in list(self._accounts.values())))

    def _new(self, url: str, settings: OAuthSettings, principal: str) -> Account:
        if settings.account == "exchange" and principal != HUB:
            return ExchangeAccount(url, settings, principal)
        if settings.grant == "client_credentials" and principal == HUB:
            return ClientAccount(url, settings)
        return LoginAccount(self.vault, url, settings, principal, look_interval=self.look_interval)


def directory_of(settings: AggregatorSettings) -> Path:
    """The folder of tokens in files."""
    if settings.oauth_dir is not None:
        return Path(settings.oauth_dir).expanduser()
    from fastmcp.settings import Settings  # noqa: PLC0415 - for servers with OAuth only

    # Without the `.env` of the working directory, which FastMCP reads: it may have come with somebody's repository.
    return Settings(_env_file=None).home / "aggregator-oauth"  # type: ignore[call-arg]
