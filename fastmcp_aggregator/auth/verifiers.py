"""The auth provider that the settings describe, and its token verifiers: API keys, and JWTs of an identity provider."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
from fastmcp.server.auth import AccessToken, AuthProvider, MultiAuth, RemoteAuthProvider, TokenVerifier
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.utilities.auth import decode_jwt_header
from pydantic import PrivateAttr
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.access.keys import ApiKey
from fastmcp_aggregator.access.keys_file import FollowedKeys
from fastmcp_aggregator.access.principal import KEY_MARK
from fastmcp_aggregator.access.roles import ROLES, USUAL, with_implied
from fastmcp_aggregator.auth.claims import claim_of, subject_of
from fastmcp_aggregator.auth.key_sets import KeySetTransport
from fastmcp_aggregator.auth.resource_metadata import IssuerMetadataProvider
from fastmcp_aggregator.config.documents import text_of
from fastmcp_aggregator.oauth.id_jag import ID_JAG
from fastmcp_aggregator.settings.model import AggregatorSettings

logger = logging.getLogger(__name__)
_LAST_SECOND = int(datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp())
_KINDS = frozenset({"jwt", "jose", "at+jwt", ID_JAG})
"""Accepted values of the header `typ` of a token."""
_KEY_HEADER = b"x-api-key"
_STANDARD_HEADER = b"authorization"


class KeyToken(AccessToken):
    """The token of an API key, and what has become of the key since it was found; the key itself is not in it."""

    _found: tuple[ApiKey, FollowedKeys] = PrivateAttr()

    @classmethod
    def of(cls, key: ApiKey, keys: FollowedKeys) -> KeyToken:
        """The token of a key that was found among others."""
        name = f"{KEY_MARK}{key.name}"
        token = cls(
            token=key.id,
            client_id=name,
            scopes=[],
            expires_at=None if key.expires is None else int(key.expires.timestamp()),
            claims=claim_of(name, key.groups, key.roles),
        )
        token._found = key, keys
        return token

    def lets_in(self, groups: Iterable[str] | None) -> bool:
        """True if its key may still be used for these groups (None: for all that it was for) with all its roles and all
        its time.
        """
        key, keys = self._found
        now = keys.current(key)
        if now is None or (now is not key and not _has_all_of(now, key)):
            return False
        needed = key.groups if groups is None else groups
        return now.groups is None or (needed is not None and now.groups.issuperset(needed))

    def watched(self, on_change: Callable[[], None]) -> AbstractContextManager[None]:
        """While something depends on its key; `on_change` is told when it may be another."""
        key, keys = self._found
        return keys.watched(key, on_change)


def _has_all_of(now: ApiKey, before: ApiKey) -> bool:
    is_sooner = now.expires is not None and (before.expires is None or now.expires < before.expires)
    is_same_owner = now.name == before.name
    return is_same_owner and not is_sooner and with_implied(now.roles).issuperset(before.roles)


class KeyVerifier(TokenVerifier):
    """Accepts the API keys of the file, also in the header `X-API-Key`."""

    def __init__(self, keys: FollowedKeys) -> None:
        super().__init__()
        self.keys = keys
        self._tokens: dict[str, tuple[ApiKey, KeyToken]] = {}
        """Access tokens by key id: the token is the same as long as the key is."""

    async def verify_token(self, token: str) -> AccessToken | None:
        key = self.keys.find(token)
        if key is None:
            return None
        kept = self._tokens.get(key.id)
        if kept is None or kept[0] is not key:
            kept = self._tokens[key.id] = key, KeyToken.of(key, self.keys)
        return kept[1]

    def get_middleware(self) -> list[Any]:
        return [Middleware(ApiKeyHeader), *super().get_middleware()]


class ProviderTokens(JWTVerifier):
    """Accepts JWTs of the identity provider that are for us and whoever brings them, valid already (`nbf`), and have an
    expiry.
    """

    def __init__(
        self, *, groups_claim: str | None, roles_claim: str | None, timeout: float = 10.0, **options: Any
    ) -> None:
        """`groups_claim` names the claim with the groups that the caller may use; without one these are all.
        `roles_claim` names that with its roles; without one, or without a role of ours in it, it has the usual one.
        `timeout` is the seconds that the provider has to send its keys, however slowly.
        """
        super().__init__(**options)
        self._timeout = timeout
        self._groups_claim = groups_claim
        self._roles_claim = roles_claim

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            async with asyncio.timeout(self._timeout):
                found = await super().verify_token(token)
        except TimeoutError:
            logger.debug("a token cannot be checked: the provider's keys have not come within %g s", self._timeout)
            return None
        except (RecursionError, OverflowError):  # JSON that is nested very deep; an expiry that is infinite
            return None
        if found is None or not (_has_term(found) and _names_somebody(found) and _is_for_bearers(found)):
            return None
        groups = None if self._groups_claim is None else _texts_at(found.claims, self._groups_claim)
        told = [] if self._roles_claim is None else _texts_at(found.claims, self._roles_claim)
        roles = [role for role in told if role in ROLES] or USUAL
        claims = {**found.claims, **claim_of(subject_of(found, "jwt", found.claims.get("iss")), groups, roles)}
        return found.model_copy(update={"claims": claims})


class AnyVerifier(MultiAuth):
    """Accepts what any of several verifiers accepts, also in the header `X-API-Key`."""

    def get_middleware(self) -> list[Any]:
        return [Middleware(ApiKeyHeader), *super().get_middleware()]


def _has_term(token: AccessToken) -> bool:
    """True if it has begun to be valid, and will end: an expiry that no calendar has is a mistake, such as one in
    milliseconds.
    """
    begin, end = token.claims.get("nbf"), token.expires_at
    has_begun = begin is None or (isinstance(begin, int | float) and begin <= time.time())
    return has_begun and end is not None and end <= _LAST_SECOND


def _is_for_bearers(token: AccessToken) -> bool:
    """True if it is a bearer token: not bound to a key or a certificate of its client (`cnf`, RFC 7800), which nobody
    looks at here, and not for another purpose, such as a logout (RFC 8725, 3.11).
    """
    kind = decode_jwt_header(token.token).get("typ", "JWT")
    is_access = isinstance(kind, str) and kind.lower().removeprefix("application/") in _KINDS
    return is_access and "cnf" not in token.claims


def _names_somebody(token: AccessToken) -> bool:
    """True if it has a subject or, of a client for itself, a client."""
    return bool(token.subject) or any(token.claims.get(name) for name in ("client_id", "azp"))


def _texts_at(claims: dict[str, Any], name: str) -> list[str]:
    """The strings of a claim, which is a list, or a text with spaces between them (those of ASCII; others are part of a
    name); `a.b` is `b` in the object `a`.
    """
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for step in name.split("."):
            value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, str):
        return [text for text in value.split(" ") if text]
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


class ApiKeyHeader:
    """ASGI middleware in front of authentication. Rejects a request with two different credentials with a 400."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keys = [value for name, value in scope.get("headers", ()) if name == _KEY_HEADER]
        others = [value for name, value in scope.get("headers", ()) if name == _STANDARD_HEADER]
        if not keys and len(others) < 2:
            await self._app(scope, receive, send)
            return
        bearer = b"Bearer " + keys[0].strip() if keys else _comparable(others[0])
        if any(_comparable(value) != bearer for value in [*others, *(b"Bearer " + key.strip() for key in keys)]):
            # RFC 6750, section 3.1: more than one method of including a token.
            headers = {"WWW-Authenticate": 'Bearer error="invalid_request"'}
            text = "send one credential: Authorization or X-API-Key, not two that differ"
            answer = PlainTextResponse(text, 400, headers)
            await answer(scope, receive, send)
            return
        rest = [header for header in scope["headers"] if header[0] != _STANDARD_HEADER]
        # First, where all find it at once who look for it; and in the same scope, for layers outside of this one look
        # there at whom authentication has found.
        scope["headers"] = [(_STANDARD_HEADER, bearer), *rest]
        await self._app(scope, receive, send)


def _comparable(authorization: bytes) -> bytes:
    scheme, _, token = authorization.strip().partition(b" ")
    return b"Bearer " + token.strip() if scheme.lower() == b"bearer" else authorization


def auth_from_settings(settings: AggregatorSettings) -> AuthProvider | None:
    """The auth provider: API keys, tokens of an identity provider, or both; None where neither is set.

    Reads the files that the settings name, and nothing over the network.

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


def keys_of(auth: AuthProvider | None) -> FollowedKeys | None:
    """The keys that a provider accepts; None: it accepts none."""
    verifiers = auth.verifiers if isinstance(auth, MultiAuth) else [auth]
    return next((each.keys for each in verifiers if isinstance(each, KeyVerifier)), None)


def _provider_tokens(settings: AggregatorSettings) -> ProviderTokens | None:
    if settings.jwt_issuer is None:
        return None
    import_module("joserfc.jwt")  # which else the first token would do, in the event loop, and take 0.2 s
    key = settings.jwt_public_key_file
    return ProviderTokens(
        groups_claim=settings.jwt_groups_claim,
        roles_claim=settings.jwt_roles_claim,
        issuer=settings.jwt_issuer,
        audience=settings.jwt_audience,
        algorithm=settings.jwt_algorithm,
        jwks_uri=settings.jwt_jwks_url,
        http_client=httpx2.AsyncClient(transport=KeySetTransport()),
        public_key=None if key is None else text_of(_path(key)),
    )


def _announced(tokens: ProviderTokens, settings: AggregatorSettings) -> RemoteAuthProvider | None:
    """With the metadata by which clients find the identity provider (RFC 9728), for which our address must be known."""
    if settings.public_url is None or settings.jwt_issuer is None:
        return None
    return IssuerMetadataProvider(tokens, [settings.jwt_issuer], settings.public_url)  # type: ignore[list-item]


def _path(text: str) -> Path:
    return Path(text).expanduser()
