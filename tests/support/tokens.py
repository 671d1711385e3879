"""JWTs of an identity provider, and of those who pretend to be it."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from fastmcp.server.auth.providers.jwt import RSAKeyPair
from joserfc import jwt
from joserfc.jwk import RSAKey

ISSUER, AUDIENCE = "https://login.example.com", "our-hub"
PAIR = RSAKeyPair.generate()
OTHER_PAIR = RSAKeyPair.generate()


def token(*, pair: RSAKeyPair = PAIR, kid: str | None = None, **claims: Any) -> str:
    """A token of the identity provider; None takes a claim away."""
    return signed(claims_of(**claims), pair, **({} if kid is None else {"kid": kid}))


def signed(claims: dict[str, Any], pair: RSAKeyPair = PAIR, **header: str) -> str:
    """A token with these claims."""
    return jwt.encode({"alg": "RS256", **header}, claims, _key_of(pair.private_key.get_secret_value()))


@cache
def _key_of(pem: str) -> RSAKey:
    """To check a key takes longer than to sign with it."""
    return RSAKey.import_key(pem)


def claims_of(**claims: Any) -> dict[str, Any]:
    """The claims of a good token, with others in their place; None takes one away."""
    standard = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": int(time.time()) + 60}
    return {name: value for name, value in {**standard, **claims}.items() if value is not None}
