"""JWTs of an identity provider, and of those who pretend to be it."""

from __future__ import annotations

import time
from typing import Any

from fastmcp.server.auth.providers.jwt import RSAKeyPair
from joserfc import jwt
from joserfc.jwk import RSAKey

ISSUER, AUDIENCE = "https://login.example.com", "our-hub"
PAIR = RSAKeyPair.generate()
OTHER_PAIR = RSAKeyPair.generate()


def token(*, pair: RSAKeyPair = PAIR, kid: str | None = None, **claims: Any) -> str:
    """A token of the identity provider; None takes a claim away."""
    key = RSAKey.import_key(pair.private_key.get_secret_value())
    return jwt.encode({"alg": "RS256", **({} if kid is None else {"kid": kid})}, claims_of(**claims), key)


def claims_of(**claims: Any) -> dict[str, Any]:
    """The claims of a good token, with others in their place; None takes one away."""
    standard = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": int(time.time()) + 60}
    return {name: value for name, value in {**standard, **claims}.items() if value is not None}
