"""An authorization-code login (RFC 6749, section 4.1, with PKCE and RFC 9207), in two halves with a person in between.

The first half makes the address that a browser is sent to, and what has to be remembered; the second takes what the
browser brings back. So they may be in two processes.

Theory. A hostile authorization server may send a browser on to an honest one, for the honest one's code to be brought
to us as the answer of the hostile one, and presented there (a mix-up). Few say who they are (`iss`). So browsers come
back to an address of its own for each issuer, and a client is registered with that of its issuer alone.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from string import whitespace
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import PKCEParameters
from mcp.client.auth.utils import union_scopes, validate_authorization_response_iss
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata
from pydantic import BaseModel, ConfigDict, Field

from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.oauth.discovery import Provider
from fastmcp_aggregator.oauth.errors import OAuthError
from fastmcp_aggregator.oauth.grants import Grants
from fastmcp_aggregator.oauth.tokens import HUB, Tokens, expiry
from fastmcp_aggregator.settings.oauth import OAuthSettings

_OFFLINE = "offline_access"
_LONGEST_RESPONSE = 4096
_DIGITS = 32
"""Digits of an issuer's digest: enough that no other issuer can be made with the same."""
_ANOTHERS = "what came back is from another authorization server than that of this login"
_AROUND = f"{whitespace}\"'<>"
"""Characters that may surround a pasted address."""
_REFUSALS = {
    "access_denied": "access was denied: nobody agreed, or the account may not",
    "invalid_request": "the authorization server did not take the request",
    "invalid_scope": "the authorization server does not give these scopes; set `scopes`",
    "invalid_target": "the authorization server gives no tokens for this `resource`",
    "invalid_client": "the authorization server does not know this client",
    "unauthorized_client": "the authorization server does not let this client log anybody in",
    "unsupported_response_type": "the authorization server does not offer authorization codes to this client",
    "server_error": "the authorization server failed; try again",
    "temporarily_unavailable": "the authorization server is overloaded; try again later",
    "login_required": "the authorization server wants the person to log in there first",
    "consent_required": "the authorization server wants the person to agree",
    "interaction_required": "the authorization server wants to ask the person something",
}


class Refused(OAuthError):
    """The authorization server, or the person there, has refused."""


class MixedUpError(Refused):
    """The response is of another authorization server than the login's."""


@dataclass(frozen=True, slots=True)
class AuthorizationResponse:
    """A browser's request after a login: the address to which it came, and its query, each name once."""

    address: str
    query: Mapping[str, str] = field(repr=False)


class Authorization(BaseModel):
    """A login that has begun: what is to be kept until the browser is back. Everything in it is secret."""

    model_config = ConfigDict(defer_build=True)

    url: str
    issuer: str
    resource: str | None = None
    metadata: OAuthMetadata | None = None
    token_endpoint: str
    authorization_endpoint: str
    revocation_endpoint: str | None = None
    client: OAuthClientInformationFull = Field(repr=False)
    redirect_uri: str
    scopes: str | None = None
    audience: str | None = None
    query: str | None = None
    state: str = Field(repr=False)
    verifier: str = Field(repr=False)
    challenge: str = Field(repr=False)

    @classmethod
    def begun(
        cls,
        provider: Provider,
        client: OAuthClientInformationFull,
        redirect_uri: str,
        settings: OAuthSettings,
        more_scopes: str | None = None,
    ) -> Authorization:
        """Begin a login; `more_scopes` are asked for besides the usual ones."""
        pkce = PKCEParameters.generate()
        return cls(
            url=provider.url,
            issuer=provider.issuer,
            resource=provider.resource,
            metadata=provider.metadata,
            token_endpoint=provider.token_endpoint,
            authorization_endpoint=provider.authorization_endpoint,
            revocation_endpoint=provider.revocation_endpoint,
            client=client,
            redirect_uri=redirect_uri,
            scopes=union_scopes(provider.scopes, more_scopes),
            audience=settings.audience,
            query=settings.authorization_query,
            state=secrets.token_urlsafe(32),
            verifier=pkce.code_verifier,
            challenge=pkce.code_challenge,
        )

    @property
    def address(self) -> str:
        """The address of the authorization request."""
        asked = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "resource": self.resource,
            "audience": self.audience,
            "scope": self.scopes,
            # OpenID Connect Core, section 11
            "prompt": "consent" if self.scopes and _OFFLINE in self.scopes.split() else None,
            **dict(parse_qsl(self.query or "")),
        }
        mark = "&" if urlsplit(self.authorization_endpoint).query else "?"
        return f"{self.authorization_endpoint}{mark}{urlencode({k: v for k, v in asked.items() if v})}"

    def matches_state(self, response: AuthorizationResponse) -> bool:
        """True if the response is of this login, and of no other."""
        return secrets.compare_digest(response.query.get("state", "").encode(), self.state.encode())

    def require_valid(self, response: AuthorizationResponse) -> None:
        """Check that it is the answer to this login.

        Raises:
            MixedUpError: it is another authorization server's.
            Refused: it is not.
        """
        if not self.matches_state(response):
            raise Refused("what came back belongs to another login (`state`)")
        if response.address != self.redirect_uri:
            raise MixedUpError(f"{_ANOTHERS} (the redirect address); it is not used")
        if not response.query.get("code") and "error" not in response.query:
            raise Refused("what came back has no authorization code")
        try:
            validate_authorization_response_iss(response.query.get("iss"), self.metadata)
        except OAuthFlowError:
            raise MixedUpError(f"{_ANOTHERS} (`iss`); it is not used") from None

    async def finished(self, response: AuthorizationResponse, settings: OAuthSettings, principal: str = HUB) -> Tokens:
        """The tokens, from what the browser brings.

        Raises:
            MixedUpError: it is another authorization server's.
            Refused: it is not the answer to this login, or a refusal.
            OAuthError: there are no tokens.
        """
        self.require_valid(response)
        if error := response.query.get("error"):
            raise Refused(_REFUSALS.get(error, _unknown(error)))
        grants = Grants(self.token_endpoint, self.issuer, self.client, settings)
        now = time.time()
        tokens = await grants.code(response.query["code"], self.verifier, self.redirect_uri, self.resource)
        tokens.scope = tokens.scope or self.scopes
        return Tokens(
            principal=principal,
            url=self.url,
            issuer=self.issuer,
            resource=self.resource,
            token_endpoint=self.token_endpoint,
            revocation_endpoint=self.revocation_endpoint,
            client=self.client,
            tokens=tokens,
            obtained_at=now,
            logged_in_at=now,
            expires_at=expiry(tokens, now),
        )


def redirect_uri(base: str, issuer: str) -> str:
    """The redirect URI for this issuer, and for no other (RFC 9700, section 4.4.2.2)."""
    return f"{base.rstrip('/')}/{hashlib.sha256(issuer.encode()).hexdigest()[:_DIGITS]}"


def authorization_response(address: str) -> AuthorizationResponse:
    """The response in an address to which a browser was sent back.

    Raises:
        Refused: it has no query, or is too long, or has a name twice.
    """
    text = address.strip(_AROUND)
    if len(text) > _LONGEST_RESPONSE:
        raise Refused("what came back is too long")
    came_to, _, query = text.partition("#")[0].partition("?")
    try:
        found = parse_qs(query, max_num_fields=20)
    except ValueError:
        raise Refused("what came back has too many parts") from None
    if any(len(values) > 1 for values in found.values()):
        raise Refused("what came back says something twice")
    if "://" not in came_to:
        raise Refused("that is not the whole address to which the browser was sent back")
    if "state" not in found:
        raise Refused("that is not the address to which the browser was sent back: it has no `state` in it")
    return AuthorizationResponse(came_to, {name: values[0] for name, values in found.items()})


def _unknown(code: str) -> str:
    return f"the authorization server refused: {printable(code)[:60]}"
