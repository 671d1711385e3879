"""Stored accounts: listed, and ended by the user who runs the program."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from fastmcp_aggregator.children.http.credentials import shown_url
from fastmcp_aggregator.cli.running.starting import load, run_command
from fastmcp_aggregator.cli.terminal.console import put, put_json, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError
from fastmcp_aggregator.config import McpConfig, RemoteServer, UnresolvedServer
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.oauth.account import kept_accounts
from fastmcp_aggregator.oauth.revocation import revoke
from fastmcp_aggregator.oauth.tokens import HUB, Tokens
from fastmcp_aggregator.replicas import vault_from_settings
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.oauth import OAuthSettings


def logout(options: argparse.Namespace) -> int:
    config, settings = load(options)
    return run_command(_end(config, settings, options.server, HUB, as_json=False))


def run(options: argparse.Namespace) -> int:
    config, settings = load(options)
    if options.action == "list":
        return run_command(_list(config, settings, as_json=options.json))
    return run_command(_end(config, settings, options.server, options.principal, as_json=options.json))


async def _list(config: McpConfig, settings: AggregatorSettings, *, as_json: bool) -> int:
    async with aclosing(vault_from_settings(settings)) as vault:
        accounts = await kept_accounts(vault)
    keys = {shown_url(server.url): key for key, server in config.servers.items() if isinstance(server, RemoteServer)}
    if as_json:
        put_json({"accounts": [_described(account, keys.get(account.url)) for account in accounts]})
    elif not accounts:
        say(f"there are no accounts in {vault}")
    else:
        put("\n".join(_line(account, keys.get(account.url)) for account in accounts))
    return FINE


async def _end(
    config: McpConfig, settings: AggregatorSettings, key: str, principal: str | None, *, as_json: bool
) -> int:
    server = remote_server(config, key)
    own = settings.servers[key].oauth if key in settings.servers else None
    async with aclosing(vault_from_settings(settings)) as vault:
        accounts = [
            account
            for account in await kept_accounts(vault)
            if account.url == shown_url(server.url) and principal in (None, account.principal)
        ]
        ended = [(account, await revoke(vault, account, own or OAuthSettings())) for account in accounts]
    if as_json:
        put_json({"revoked": [_described(account, key) | {"isRevokedThere": there} for account, there in ended]})
    return _told(key, ended)


def _told(key: str, ended: Sequence[tuple[Tokens, bool]]) -> int:
    if not ended:
        say(f"nobody is logged in to {key!r}")
        return FAILED
    for account, is_revoked in ended:
        there = "revoked there too" if is_revoked else f"{account.issuer} does not revoke them; do so there if need be"
        say(f"{_whose(account)} is logged out of {key!r}; the tokens are removed, and {there}")
    return FINE


def _whose(account: Tokens) -> str:
    return printable(account.principal) if account.principal != HUB else "the hub"


def _line(account: Tokens, key: str | None) -> str:
    what = "login needed" if account.is_refused else f"since {_date(account.obtained_at)}"
    return f"{key or account.url}  {_whose(account)}  {account.issuer}  {what}"


def _described(account: Tokens, key: str | None) -> dict[str, Any]:
    """The public fields of an account: no token."""
    return {
        "server": key,
        "url": account.url,
        "principal": account.principal or None,
        "issuer": account.issuer,
        "resource": account.resource,
        "scopes": (account.tokens.scope or "").split(),
        "renewed": _date(account.obtained_at),
        "loginNeeded": account.is_refused,
    }


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def remote_server(config: McpConfig, key: str) -> RemoteServer:
    """The server of this key. Raises UsageError: there is none that can be logged in to."""
    server = config.servers.get(key)
    if isinstance(server, RemoteServer):
        return server
    if isinstance(server, UnresolvedServer):
        raise UsageError(f"cannot log in to {key!r}: {server.reason}")
    remote = [
        other
        for other, entry in config.servers.items()
        if isinstance(entry, RemoteServer) or (isinstance(entry, UnresolvedServer) and entry.transport == "http")
    ]
    why = "there is no server" if server is None else "there is no login for a server without a `url`:"
    raise UsageError(f"{why} {key!r}; servers with a `url`: {', '.join(map(repr, remote)) or 'none'}")
