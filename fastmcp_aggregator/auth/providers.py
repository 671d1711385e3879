"""The auth provider that the settings describe, if they describe one."""

from __future__ import annotations

from pathlib import Path

from fastmcp.server.auth import AuthProvider, RemoteAuthProvider

from fastmcp_aggregator.access.keys_file import FollowedKeys
from fastmcp_aggregator.auth.resource_metadata import IssuerMetadataProvider
from fastmcp_aggregator.auth.verifiers import AnyVerifier, KeyVerifier, ProviderTokens
from fastmcp_aggregator.config.files import text_of
from fastmcp_aggregator.settings.model import AggregatorSettings


def auth_from_settings(settings: AggregatorSettings) -> AuthProvider | None:
    """What lets callers in: API keys, tokens of an identity provider, or either of both; None where neither is set.

    Reads the files that the settings name, and asks nobody over the network.

    Raises:
        ConfigError: one of the files cannot be used; with every problem of it.
    """
    keys = None if settings.keys_file is None else KeyVerifier(FollowedKeys(_path(settings.keys_file)))
    tokens = _provider_tokens(settings)
    if tokens is None:
        return keys
    provider = _announced(tokens, settings) or tokens
    if keys is None:
        return provider
    if isinstance(provider, RemoteAuthProvider):
        return AnyVerifier(server=provider, verifiers={"keys": keys}, server_source_id="provider")
    return AnyVerifier(verifiers={"keys": keys, "provider": tokens})


def _provider_tokens(settings: AggregatorSettings) -> ProviderTokens | None:
    if settings.jwt_issuer is None:
        return None
    key = settings.jwt_public_key_file
    return ProviderTokens(
        groups_claim=settings.jwt_groups_claim,
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        algorithm=settings.jwt_algorithm,
        jwks_uri=settings.jwt_jwks_url,
        public_key=None if key is None else text_of(_path(key)),
    )


def _announced(tokens: ProviderTokens, settings: AggregatorSettings) -> RemoteAuthProvider | None:
    """With the metadata by which clients find the identity provider (RFC 9728), for which our address must be known."""
    if settings.public_url is None or settings.jwt_issuer is None:
        return None
    return IssuerMetadataProvider(tokens, [settings.jwt_issuer], settings.public_url)  # type: ignore[list-item]


def _path(text: str) -> Path:
    return Path(text).expanduser()
