"""Our client identity at an authorization server: a registered one, a metadata document, or one that registers itself.

`fitting` is pure: it decides by the settings and the provider's metadata, and is what `check` tells beforehand.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx2
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.extensions.client_credentials import SignedJWTParameters
from mcp.client.auth.oauth2 import OAuthContext, check_registration_usable
from mcp.client.auth.utils import (
    create_client_info_from_metadata_url,
    create_client_registration_request,
    handle_registration_response,
    issuers_match,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from fastmcp_aggregator.early.reading import read_bytes
from fastmcp_aggregator.oauth.discovery import Provider
from fastmcp_aggregator.oauth.errors import ClientRefused, Unreachable
from fastmcp_aggregator.oauth.web import sent
from fastmcp_aggregator.settings.oauth import OAuthSettings
from fastmcp_aggregator.version import PROGRAM

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_LIFE = 120
_LARGEST_KEY_FILE = 64 * 1024
_ALGORITHMS = {256: "ES256", 384: "ES384", 521: "ES512"}


def fitting(provider: Provider, settings: OAuthSettings) -> str | None:
    """Say what has to be set for this provider; None: what is set does."""
    if settings.client_id is not None or provider.registration_endpoint is not None:
        return None
    if settings.client_metadata_url is not None:
        words = "its authorization server takes no client metadata document; register a client, and set `client_id`"
        return None if provider.takes_documents else words
    if provider.takes_documents:
        return (
            "its authorization server lets no client register itself; set `client_metadata_url`, or register a client "
            "there, and set `client_id`"
        )
    return "its authorization server lets no client register itself; register one there, and set `client_id`"


async def client_for(provider: Provider, settings: OAuthSettings, redirect_uri: str) -> OAuthClientInformationFull:
    """The client for this provider, to which a browser comes back at `redirect_uri`; registered now if need be.

    Raises:
        ClientRefused: something has to be set first, or the registration is refused.
        Unreachable: no answer came.
    """
    lacking = fitting(provider, settings)
    if lacking is not None:
        raise ClientRefused(lacking)
    if settings.client_id is not None:
        return known_client(provider, settings, redirect_uri)
    if settings.client_metadata_url is not None and provider.takes_documents:
        client = create_client_info_from_metadata_url(settings.client_metadata_url, [AnyUrl(redirect_uri)])
        client.issuer = provider.issuer
        return client
    return await _registered(provider, redirect_uri)


def known_client(provider: Provider, settings: OAuthSettings, redirect_uri: str | None) -> OAuthClientInformationFull:
    """The client of the settings, without its secret, which is read when it is used.

    Raises:
        ClientRefused: its secret is not there.
    """
    assert settings.client_id is not None
    return OAuthClientInformationFull(
        client_id=settings.client_id,
        redirect_uris=None if redirect_uri is None else [AnyUrl(redirect_uri)],
        token_endpoint_auth_method=_method(provider, settings),
        issuer=provider.issuer,
    )


async def authenticated(
    form: dict[str, str], client: OAuthClientInformationFull, settings: OAuthSettings, issuer: str
) -> tuple[dict[str, str], dict[str, str]]:
    """A form for an endpoint of this issuer and its headers, with the client's proof of itself. What the settings have
    for that goes to their issuer alone; who has logged in before they named it may be logged in at another one.

    Raises:
        ClientRefused: the client's secret or key is not there.
    """
    form = {**form, "client_id": client.client_id}
    is_ours = client.client_id == settings.client_id and issuers_match(issuer, settings.issuer or issuer)
    if is_ours and settings.private_key_file is not None:
        return {**form, "client_assertion_type": _ASSERTION, "client_assertion": await _assertion(settings, issuer)}, {}
    if is_ours and settings.client_secret_env is not None:
        client = client.model_copy(update={"client_secret": _secret(settings.client_secret_env)})
    try:
        return _context(client).prepare_token_auth(form, {})
    except OAuthFlowError:
        raise ClientRefused("its authorization server wants a proof of the client that is not known here") from None


def _context(client: OAuthClientInformationFull) -> OAuthContext:
    """The SDK's context, which is there only to compose a request."""
    nothing: object = None
    return OAuthContext("", nothing, nothing, None, None, client_info=client)  # type: ignore[arg-type]


def _method(provider: Provider, settings: OAuthSettings) -> str:
    if settings.private_key_file is not None:
        return "private_key_jwt"
    if settings.client_secret_env is None:
        return "none"
    offered = provider.metadata.token_endpoint_auth_methods_supported if provider.metadata is not None else None
    is_basic = not offered or "client_secret_basic" in offered  # what is left out means basic (RFC 8414, section 2)
    return "client_secret_basic" if is_basic else "client_secret_post"


def _secret(variable: str) -> str:
    secret = os.environ.get(variable, "").strip()
    if not secret:
        raise ClientRefused(f"the environment variable {variable} (its `client_secret_env`) is not set")
    return secret


async def _assertion(settings: OAuthSettings, issuer: str) -> str:
    """A signed proof of the client (RFC 7523, section 2.2)."""
    assert settings.client_id is not None
    assert settings.private_key_file is not None
    try:
        pem = await asyncio.to_thread(_text, settings.private_key_file)
        algorithm = _algorithm(pem)
    except (OSError, ValueError, TypeError):
        raise ClientRefused("its `private_key_file` cannot be read as a private key (PEM, no password)") from None
    signed = SignedJWTParameters(
        issuer=settings.client_id,
        subject=settings.client_id,
        signing_key=pem,
        signing_algorithm=algorithm,
        lifetime_seconds=_ASSERTION_LIFE,
    )
    return await signed.create_assertion_provider()(issuer)


def _text(path: str) -> str:
    return read_bytes(Path(path).expanduser(), _LARGEST_KEY_FILE).decode("ascii")


def _algorithm(pem: str) -> str:
    key = load_pem_private_key(pem.encode(), None)
    if isinstance(key, EllipticCurvePrivateKey):
        return _ALGORITHMS[key.curve.key_size]
    return "EdDSA" if isinstance(key, Ed25519PrivateKey) else "RS256"


async def _registered(provider: Provider, redirect_uri: str) -> OAuthClientInformationFull:
    """A client that has registered itself (RFC 7591); it is bound to this issuer."""
    is_local = httpx2.URL(redirect_uri).scheme == "http"
    asked = OAuthClientMetadata(
        client_name=f"{PROGRAM} for {httpx2.URL(provider.url).host}",
        redirect_uris=[AnyUrl(redirect_uri)],
        token_endpoint_auth_method="none",
        scope=provider.scopes,
        application_type="native" if is_local else "web",
    )
    assert provider.registration_endpoint is not None
    request = create_client_registration_request(provider.metadata, asked, provider.registration_endpoint)
    answer = await sent(request)
    if answer.status >= 500 or answer.status == 429:
        raise Unreachable(f"its authorization server registers no client now (HTTP status {answer.status}); try again")
    if answer.status not in (200, 201):
        raise ClientRefused(
            f"its authorization server refuses to register a client (HTTP status {answer.status}); register one there, "
            "and set `client_id`"
        )
    try:
        client = await handle_registration_response(answer.as_response(request))
        check_registration_usable(client)
    except OAuthRegistrationError:
        raise ClientRefused("its authorization server has registered a client that cannot be used here") from None
    client.issuer = provider.issuer
    return client
