"""The stored tokens of a login, and with which client and where they are refreshed."""

from __future__ import annotations

import time

from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import BaseModel, ConfigDict, Field

HUB = ""
"""The principal of the hub's own account."""
_MARGIN = 30.0
"""Seconds before its end in which a token is no longer used, of those that last."""
_SHARE = 0.1
"""The fraction of its lifetime that a short-lived token is renewed ahead of its end."""


class Tokens(BaseModel):
    """One account's tokens. `expires_at` and `obtained_at` are in Unix seconds; an empty `principal` is the hub."""

    model_config = ConfigDict(defer_build=True)

    principal: str = HUB
    url: str
    issuer: str
    resource: str | None = None
    token_endpoint: str
    revocation_endpoint: str | None = None
    client: OAuthClientInformationFull = Field(repr=False)
    tokens: OAuthToken = Field(repr=False)
    obtained_at: float
    logged_in_at: float = 0.0
    """When a person has logged in; renewals leave it as it is."""
    expires_at: float | None = None
    is_refused: bool = False
    """True once the refresh token was refused: it is not tried again."""
    renewals_begun: int = 0
    """Renewals whose outcome was not kept: a program was ended, and the refresh token may be spent."""
    wanted_scopes: str | None = None
    """Scopes that the server wants besides, and that the next login asks for."""

    def are_good(self, now: float) -> bool:
        """True if the access token can be used for a while."""
        if self.is_refused or self.expires_at is None:
            return not self.is_refused
        life = self.expires_at - self.obtained_at
        return now < self.expires_at - min(_MARGIN, life * _SHARE)

    @property
    def name(self) -> str:
        """Their key in the vault. Where nothing says which resource they are for, it is the address."""
        return name_of(self.principal, self.issuer, self.resource or self.url)

    def renewed(self, new: OAuthToken) -> Tokens:
        """The account with new tokens; what an answer leaves out stays as it was (RFC 6749, section 6)."""
        old = self.tokens
        kept = {"refresh_token": new.refresh_token or old.refresh_token, "scope": new.scope or old.scope}
        now = time.time()
        return self.model_copy(
            update={
                "tokens": new.model_copy(update=kept),
                "obtained_at": now,
                "expires_at": expiry(new, now),
                "is_refused": False,
                "renewals_begun": 0,
            }
        )


def expiry(token: OAuthToken, now: float) -> float | None:
    """When a token that was got now ends."""
    return None if token.expires_in is None else now + token.expires_in


def name_of(principal: str, issuer: str, resource: str) -> str:
    """The key of an account's tokens in the vault (SEP-2352: the tokens of one issuer are never another's)."""
    return "\n".join((principal, issuer, resource))
