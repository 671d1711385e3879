"""The requirements of authorization servers, from their metadata, before anything is started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from fastmcp_aggregator.config import McpConfig, RemoteServer
from fastmcp_aggregator.oauth.account import kept_tokens
from fastmcp_aggregator.oauth.authorization import redirect_uri
from fastmcp_aggregator.oauth.clients import fitting
from fastmcp_aggregator.oauth.discovery import Provider, discovered
from fastmcp_aggregator.oauth.errors import NothingAsked, OAuthError
from fastmcp_aggregator.oauth.logins import callback_of
from fastmcp_aggregator.oauth.tokens import HUB
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import Vault
from fastmcp_aggregator.replicas import vault_from_settings
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.oauth import OAuthSettings

_TIMEOUT = 20.0
_EXAMPLE_PORT = 8765
_ANY_PORT = "PORT"
"""For one that is found when it is needed."""
_AFTER = "then run `fastmcp-aggregator login CONFIG {key}`"


@dataclass(frozen=True, slots=True)
class LoginReport:
    """The requirements of one server's authorization server. `ways` are the kinds of clients that it takes; `write` is
    what to write into the settings, `lacking` why. `redirect_uris` are those that a client needs which does not
    register itself. `is_logged_in` is None where nobody has to log in, `issuer` if nobody could be asked or is to log
    in, and `why` says so.
    """

    issuer: str | None
    ways: tuple[str, ...] = ()
    scopes: str | None = None
    lacking: str | None = None
    write: tuple[str, ...] = ()
    redirect_uris: tuple[str, ...] = ()
    is_logged_in: bool | None = None
    why: str | None = None


async def login_reports(
    config: McpConfig, settings: AggregatorSettings, also: Sequence[str] = ()
) -> Mapping[str, LoginReport]:
    """The reports on all remote servers with OAuth, and on those that are named, by key."""
    asked: dict[str, tuple[RemoteServer, OAuthSettings | None]] = {}
    for key, server in config.servers.items():
        own = settings.servers[key].oauth if key in settings.servers else None
        if isinstance(server, RemoteServer) and (own is not None or key in also):
            asked[key] = server, own
    if not asked:
        return {}
    async with aclosing(vault_from_settings(settings)) as vault:
        reports = (_report(server, own, vault, settings.public_url) for server, own in asked.values())
        found = await asyncio.gather(*map(_within, reports))
    return dict(zip(asked, found, strict=True))


def told(reports: Mapping[str, LoginReport]) -> Iterator[str]:
    for key, report in reports.items():
        yield f"  {key}: {_sentence(key, report)}"
        if report.redirect_uris:
            addresses = " and ".join(report.redirect_uris)
            yield f"    the redirect address that its client is registered with has to be {addresses}"
        yield from (f"    {line}" for line in report.write)


async def _within(work: object) -> LoginReport:
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await work  # type: ignore[misc, no-any-return]
    except TimeoutError:
        return LoginReport(None, why=f"no answer within {_TIMEOUT:g} s")


async def _report(server: RemoteServer, own: OAuthSettings | None, vault: Vault, public_url: str | None) -> LoginReport:
    settings = own or OAuthSettings()
    try:
        provider = await discovered(server.url, settings, server.plain_headers())
        if settings.grant == "authorization_code" and _lets_people_in(provider):
            provider.require_pkce()
    except NothingAsked:
        return LoginReport(None, why="it asks for no login; `oauth` can be left out")
    except OAuthError as error:
        return LoginReport(None, why=str(error))
    report = wanted(server.key, provider, own, public_url)
    return report if report.is_logged_in is None else replace(report, is_logged_in=await _is_logged_in(provider, vault))


def wanted(key: str, provider: Provider, own: OAuthSettings | None, public_url: str | None = None) -> LoginReport:
    """The report on one server that nobody has logged in to, from its provider's metadata and what is set so far."""
    settings = own or OAuthSettings()
    lacking = _lacking(provider, settings)
    is_logged_in = False if settings.grant == "authorization_code" and _lets_people_in(provider) else None
    write = tuple(_to_write(key, provider, own, lacking))
    redirects = () if is_logged_in is None else tuple(_redirect_uris(provider, settings, public_url))
    ways = tuple(_ways(provider))
    return LoginReport(provider.issuer, ways, provider.scopes, lacking, write, redirects, is_logged_in)


def _lacking(provider: Provider, settings: OAuthSettings) -> str | None:
    if settings.grant == "authorization_code" and not _lets_people_in(provider):
        return "nobody logs in at its authorization server: its clients have access themselves; set `grant`"
    has_proof = settings.client_secret_env is not None or settings.private_key_file is not None
    if settings.client_id is not None and not has_proof and "none" not in _proofs(provider):
        return "its authorization server takes no client without a proof of itself; set one"
    return fitting(provider, settings)


def _redirect_uris(provider: Provider, settings: OAuthSettings, public_url: str | None) -> Iterator[str]:
    """The redirect URIs of a client that does not register itself: for `login`, and for logins in the hub's pages."""
    is_registered = settings.client_id is not None or settings.client_metadata_url is not None
    if not is_registered and fitting(provider, settings) is None:
        return
    if settings.account != "caller" or settings.lists == "hub":
        port = settings.callback_port or (_ANY_PORT if is_registered else _EXAMPLE_PORT)
        yield redirect_uri(f"http://localhost:{port}{settings.callback_path}", provider.issuer)
    if public_url is not None:
        yield redirect_uri(callback_of(public_url), provider.issuer)


def _grants(provider: Provider) -> Sequence[str]:
    """The grants that it declares; without a declaration, the default (RFC 8414, section 2)."""
    said = provider.metadata.grant_types_supported if provider.metadata is not None else None
    return said or ("authorization_code",)


def _proofs(provider: Provider) -> Sequence[str]:
    """The authentication methods that clients may use; for a server that declares none, any."""
    said = provider.metadata.token_endpoint_auth_methods_supported if provider.metadata is not None else None
    return said or ("none", "client_secret_basic")


def _lets_people_in(provider: Provider) -> bool:
    return "authorization_code" in _grants(provider)


def _ways(provider: Provider) -> Iterator[str]:
    if _lets_people_in(provider):
        if provider.registration_endpoint is not None:
            yield "dynamic registration"
        if provider.takes_documents:
            yield "client metadata document"
        yield "client id"
    if "client_credentials" in _grants(provider):
        yield "client credentials"
    if "private_key_jwt" in _proofs(provider):
        yield "private key"


def _to_write(key: str, provider: Provider, own: OAuthSettings | None, lacking: str | None) -> Iterator[str]:
    if lacking is None:
        if own is None:
            yield f"[servers.{key}]"
            yield "oauth = true"
        return
    yield f"[servers.{key}.oauth]"
    lets_people_in = _lets_people_in(provider)
    if not lets_people_in:
        yield 'grant = "client_credentials"'
    elif provider.takes_documents:
        yield 'client_metadata_url = "https://…"  # or, of a client that you have registered:'
    yield 'client_id = "…"'
    yield from _proof(provider)
    yield f'issuer = "{provider.issuer}"'
    if lets_people_in:
        yield f'callback_port = {_EXAMPLE_PORT}  # not with `account = "caller"`'
        if "client_credentials" in _grants(provider):
            yield '# grant = "client_credentials"  # instead of `callback_port`, if nobody is to log in'


def _proof(provider: Provider) -> Iterator[str]:
    proofs = _proofs(provider)
    when = "if the client has a secret" if "none" in proofs else "the client's secret"
    takes_secret, takes_key = any("secret" in each for each in proofs), "private_key_jwt" in proofs
    if takes_secret:
        yield f'client_secret_env = "NAME_OF_A_VARIABLE"  # {when}' + ("; or" if takes_key else "")
    if takes_key:
        yield 'private_key_file = "client.pem"  # the private key, of which the provider has the public one'


async def _is_logged_in(provider: Provider, vault: Vault) -> bool:
    try:
        kept = await kept_tokens(vault, provider.url, HUB)
    except VaultError:
        return False
    return kept is not None and not kept.is_refused and kept.issuer == provider.issuer


def _sentence(key: str, report: LoginReport) -> str:
    if report.issuer is None:
        return report.why or ""
    scopes = f", for the scopes `{report.scopes}`" if report.scopes else ""
    takes = f"{report.issuer} takes: {', '.join(report.ways)}{scopes}"
    if report.lacking is not None:
        after = "write" if report.is_logged_in is None else _AFTER.format(key=key)
        return f"{takes}. {report.lacking[0].upper()}{report.lacking[1:]}; {after}:"
    if report.is_logged_in is None:
        return f"{takes}. Nobody has to log in."
    return f"{takes}. " + ("Logged in." if report.is_logged_in else f"Not logged in; {_AFTER.format(key=key)[5:]}.")
