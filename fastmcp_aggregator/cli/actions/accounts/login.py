"""A login to a remote server, in any browser; its tokens are kept for the program that serves."""

from __future__ import annotations

import argparse
import os
from contextlib import aclosing

from fastmcp_aggregator.cli.actions.accounts.accounts import remote_server
from fastmcp_aggregator.cli.actions.accounts.browser import has_browser, listening
from fastmcp_aggregator.cli.running.starting import load, run_command
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import FINE, UsageError
from fastmcp_aggregator.cli.terminal.questions import answered, may_ask
from fastmcp_aggregator.config import RemoteServer
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.oauth.account import keep, wanted_scopes
from fastmcp_aggregator.oauth.authorization import Authorization
from fastmcp_aggregator.oauth.clients import client_for, fitting
from fastmcp_aggregator.oauth.discovery import Provider, discovered
from fastmcp_aggregator.oauth.errors import ClientRefused, NoAnswer, NothingAsked, OAuthError
from fastmcp_aggregator.oauth.revocation import revoked_there
from fastmcp_aggregator.oauth.tokens import HUB, Tokens
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import Vault
from fastmcp_aggregator.replicas import vault_from_settings
from fastmcp_aggregator.settings.oauth import OAuthSettings

_NOBODY_THERE = (
    "Check that it runs and that this machine reaches it (a VPN, HTTPS_PROXY); if the address is wrong, it is `url` in "
    "{config}."
)


def run(options: argparse.Namespace) -> int:
    config, settings = load(options)
    server = remote_server(config, options.server)
    own = settings.servers[server.key].oauth if server.key in settings.servers else None
    if own is not None and own.grant == "client_credentials":
        raise UsageError(f"nobody has to log in to {server.key!r}: its settings have `client_credentials`")
    return run_command(_log_in(server, own, vault_from_settings(settings), options))


async def _log_in(server: RemoteServer, own: OAuthSettings | None, vault: Vault, options: argparse.Namespace) -> int:
    try:
        async with aclosing(vault):
            tokens = await logged_in(server, own or OAuthSettings(), vault, options)
            await _kept(tokens, own or OAuthSettings(), vault)
    except NothingAsked as error:
        raise AggregatorError(f"{server.key!r} requires no login: {error}") from None
    except (OAuthError, VaultError) as error:
        raise AggregatorError(f"logging in to {server.key!r} failed: {error}{_advice(error, options.config)}") from None
    say(f"logged in to {server.key!r}; the tokens are kept in {vault}")
    if own is None:
        say(f"They are used once the settings have `oauth = true` under [servers.{server.key}].")
    return FINE


def _advice(error: Exception, config: str) -> str:
    if isinstance(error, NoAnswer):
        return f"\n{_NOBODY_THERE.format(config=config)}"
    if isinstance(error, VaultError):
        return "\nTokens are kept where `oauth_dir` in the settings says, or FASTMCP_AGGREGATOR_OAUTH_DIR."
    return f"\n`fastmcp-aggregator check {config}` says what to write." if isinstance(error, ClientRefused) else ""


async def _kept(tokens: Tokens, settings: OAuthSettings, vault: Vault) -> None:
    """Keep the tokens of a login; where that is not possible, they are revoked."""
    try:
        await keep(vault, tokens)
    except VaultError:
        await revoked_there(tokens, settings)
        raise


async def logged_in(server: RemoteServer, settings: OAuthSettings, vault: Vault, options: argparse.Namespace) -> Tokens:
    """The outcome of a login.

    Raises:
        OAuthError, VaultError: there are no tokens.
        AggregatorError: nobody has come back, or the port cannot be used.
    """
    say(f"asking {server.label} where to log in")
    provider = await discovered(server.url, settings, server.plain_headers())
    say(f"its authorization server is {provider.issuer}")
    provider.require_pkce()
    await vault.require_room()
    more = await wanted_scopes(vault, provider.url, HUB)
    port = options.port or settings.callback_port
    async with listening(port, settings.callback_path, provider.issuer) as callback:
        settings = _completed(provider, settings, callback.address)
        client = await client_for(provider, settings, callback.address)
        authorization = Authorization.begun(provider, client, callback.address, settings, more)
        response = await callback.response(authorization, opens_browser=options.browser and has_browser())
        return await authorization.finished(response, settings)


def _completed(provider: Provider, settings: OAuthSettings, address: str) -> OAuthSettings:
    """The settings with what a person is asked for, because the provider needs it. A person with a registered client is
    told its redirect address.
    """
    lacking = fitting(provider, settings)
    if lacking is None and settings.client_id is None and settings.client_metadata_url is None:
        return settings
    say(f"the redirect address that its client is registered with has to be {address}")
    if lacking is None or not may_ask():
        return settings
    say(f"{lacking}.")
    client_id = answered("The client's id (empty: give up): ")
    if not client_id:
        return settings
    variable = answered("The environment variable with its secret (empty: it has none): ") or None
    if variable is not None and not os.environ.get(variable):
        raise UsageError(f"the environment variable {variable} is not set")
    say("Write into the settings of the server, under `oauth`, so that the login can be renewed:")
    added = {"client_id": client_id}
    if variable is not None:
        added |= {"client_secret_env": variable, "issuer": provider.issuer}
    for name, value in added.items():
        say(f'  {name} = "{value}"')
    return OAuthSettings.model_validate({**settings.model_dump(exclude_none=True), **added})
