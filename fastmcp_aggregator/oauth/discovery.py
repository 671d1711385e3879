"""Discovery: from a server's refusal to its authorization server (RFC 9728, RFC 8414), by the SDK's rules.

Nothing of it is trusted beyond what it says: an issuer has to be the one whose metadata were asked for, and a resource
one that the server's address is part of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urljoin

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from fastmcp_aggregator.children.http.credentials import shown_url
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.oauth.errors import ClientRefused, NothingAsked, OAuthError, Unreachable
from fastmcp_aggregator.oauth.web import HttpAnswer, require_secure, sent
from fastmcp_aggregator.settings.oauth import NO_RESOURCE, OAuthSettings
from fastmcp_aggregator.version import PROGRAM, VERSION

_HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": HANDSHAKE_PROTOCOL_VERSIONS[-1],
        "capabilities": {},
        "clientInfo": {"name": PROGRAM, "version": VERSION},
    },
}
"""A request to which a server answers that a login is needed."""
_DISCOVERY_TIMEOUT = 30.0
_MOST_SERVERS = 20
"""Authorization servers of one server that are looked at."""
_SHOWN = 200

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Provider:
    """The authorization server of one MCP server, and what it has for clients.

    `issuer` is as its metadata have it; `resource` is what tokens are asked for, None where nothing says so. `metadata`
    is None for servers from before metadata, whose endpoints are where they were then.
    """

    url: str
    issuer: str
    resource: str | None
    scopes: str | None
    metadata: OAuthMetadata | None

    @property
    def authorization_endpoint(self) -> str:
        return self._endpoint("authorization_endpoint", "/authorize")

    @property
    def token_endpoint(self) -> str:
        return self._endpoint("token_endpoint", "/token")

    @property
    def registration_endpoint(self) -> str | None:
        """The endpoint for dynamic client registration; None: there is none."""
        if self.metadata is None:
            return self._endpoint("registration_endpoint", "/register")
        return self._endpoint("registration_endpoint", "") if self.metadata.registration_endpoint else None

    @property
    def revocation_endpoint(self) -> str | None:
        """The endpoint for token revocation (RFC 7009); None: there is none."""
        has_one = self.metadata is not None and self.metadata.revocation_endpoint
        return self._endpoint("revocation_endpoint", "") if has_one else None

    @property
    def takes_documents(self) -> bool:
        """True if it takes the address of a client metadata document as a client's id."""
        return self.metadata is not None and self.metadata.client_id_metadata_document_supported is True

    def require_pkce(self) -> None:
        """Raise OAuthError where it says that it takes no challenges of ours. One that says nothing may take them."""
        methods = self.metadata.code_challenge_methods_supported if self.metadata is not None else None
        if methods is not None and "S256" not in methods:
            raise OAuthError("its authorization server does not protect logins: it takes no PKCE with S256")

    def _endpoint(self, name: str, path_of_old: str) -> str:
        given = getattr(self.metadata, name, None) if self.metadata is not None else None
        return require_secure(str(given) if given else urljoin(self.issuer, path_of_old), self.url)


async def discovered(address: str, settings: OAuthSettings, headers: Mapping[str, str] | None = None) -> Provider:
    """The authorization server of the MCP server at an address, which is asked with its own `headers`.

    Raises:
        NothingAsked: the server lets us in without.
        ClientRefused: the settings name another authorization server than it does.
        Unreachable: somebody does not answer, or not as they must.
    """
    try:
        async with asyncio.timeout(_DISCOVERY_TIMEOUT):
            return await _discovered(address, settings, headers or {})
    except TimeoutError:
        raise Unreachable(
            f"it and its authorization server did not say within {_DISCOVERY_TIMEOUT:g} s where to log in"
        ) from None


async def _discovered(address: str, settings: OAuthSettings, headers: Mapping[str, str]) -> Provider:
    url = shown_url(address)
    challenge = await _challenge(address, headers)
    resource = await _resource_metadata(url, challenge)
    if challenge.status not in (401, 403) and resource is None:
        raise NothingAsked(f"it answered without asking for a login (HTTP status {challenge.status})")
    advertised = [str(each) for each in resource.authorization_servers][:_MOST_SERVERS] if resource is not None else []
    issuer = _chosen(advertised, settings.issuer)
    metadata = await _server_metadata(issuer, url)
    if metadata is None and issuer is not None:
        raise Unreachable(f"its authorization server {_shown(issuer)} has no metadata")
    as_said = None if resource is None else str(resource.resource)
    set_here = None if settings.resource == NO_RESOURCE else settings.resource or as_said
    return Provider(
        url,
        str(metadata.issuer) if metadata is not None else urljoin(url, "/").rstrip("/"),
        set_here,
        " ".join(settings.scopes) or _named_scopes(challenge, resource, metadata, settings),
        metadata,
    )


async def _challenge(url: str, headers: Mapping[str, str]) -> HttpAnswer:
    """The server's challenge (`WWW-Authenticate`) to somebody without a token."""
    asked = {"Accept": "application/json, text/event-stream", **headers}
    try:
        request = httpx2.Request("POST", url, json=_HANDSHAKE, headers=asked)
    except httpx2.InvalidURL:
        raise Unreachable("its address is not valid") from None
    answer = await sent(request)
    if answer.status >= 500:
        raise Unreachable(f"it answered with HTTP status {answer.status}")
    return answer


async def _resource_metadata(url: str, challenge: HttpAnswer) -> ProtectedResourceMetadata | None:
    response = challenge.as_response(httpx2.Request("POST", url))
    named = extract_resource_metadata_from_www_auth(response)
    for address in build_protected_resource_metadata_discovery_urls(named, url):
        answer = await sent(create_oauth_metadata_request(require_secure(address, url)))
        if answer.status >= 500 or answer.status == 429:
            raise Unreachable(f"its resource metadata cannot be got now (HTTP status {answer.status}); try again")
        metadata = _parsed(ProtectedResourceMetadata, answer)
        if metadata is None:
            continue
        if not check_resource_allowed(resource_url_from_server_url(url), str(metadata.resource)):
            raise Unreachable(f"it says that it is another resource: {_shown(str(metadata.resource))}")
        return metadata
    return None


async def _server_metadata(issuer: str | None, url: str) -> OAuthMetadata | None:
    expected = issuer or urljoin(url, "/").rstrip("/")
    for address in build_oauth_authorization_server_metadata_discovery_urls(issuer, url):
        answer = await sent(create_oauth_metadata_request(require_secure(address, url)))
        if answer.status >= 500:
            raise Unreachable(
                f"the metadata of its authorization server cannot be got now (HTTP status {answer.status}); try again"
            )
        metadata = _parsed(OAuthMetadata, answer)
        if metadata is None:
            continue
        if not issuers_match(str(metadata.issuer), expected):
            raise Unreachable(
                f"issuer mismatch: {_shown(str(metadata.issuer))} says its metadata, and they were asked for "
                f"{_shown(expected)}"
            )
        return metadata
    return None


def _chosen(advertised: list[str], wanted: str | None) -> str | None:
    """The issuer to use; None: that of the server's own origin, as before there was resource metadata."""
    if wanted is None:
        return advertised[0] if advertised else None
    found = next((each for each in advertised if issuers_match(each, wanted)), None)
    if found is None and advertised:
        raise ClientRefused(
            f"`issuer` in its settings is {_shown(wanted)}, and the server names {', '.join(map(_shown, advertised))}"
        )
    return found or wanted


def _named_scopes(
    challenge: HttpAnswer,
    resource: ProtectedResourceMetadata | None,
    metadata: OAuthMetadata | None,
    settings: OAuthSettings,
) -> str | None:
    grants: list[str] = [settings.grant]
    if settings.grant == "authorization_code":
        grants.append("refresh_token")
    response = challenge.as_response(httpx2.Request("POST", "http://server"))
    found = get_client_metadata_scopes(extract_scope_from_www_auth(response), resource, metadata, grants)
    return " ".join((found or "").split()) or None  # of a server that names none, the SDK leaves a space


def _parsed(model: type[Model], answer: HttpAnswer) -> Model | None:
    if answer.status != 200:
        return None
    try:
        return model.model_validate_json(answer.body)
    except ValidationError:
        return None


def _shown(url: str) -> str:
    return printable(url)[:_SHOWN]
