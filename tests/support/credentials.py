"""API keys, and tokens of an identity provider, that a hub accepts side by side."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastmcp.server.auth import AuthProvider

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.access.roles import USUAL
from fastmcp_aggregator.auth.verifiers import auth_from_settings
from fastmcp_aggregator.settings.model import load_settings
from support.tokens import AUDIENCE, ISSUER, PAIR, signed


class Credentials:
    """The keys of a file, made anew in a folder, and the tokens of a provider."""

    def __init__(
        self,
        folder: Path,
        groups: Mapping[str, Sequence[str] | None],
        roles: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """`groups` are those of each key, by its owner's name; None: all. `roles` are theirs, where unusual."""
        self.file = folder / "keys.json"
        (folder / "provider.pem").write_text(PAIR.public_key)
        self.settings = {
            "keys_file": str(self.file),
            "jwt_issuer": ISSUER,
            "jwt_audience": AUDIENCE,
            "jwt_public_key_file": str(folder / "provider.pem"),
            "jwt_groups_claim": "groups",
        }
        made = {name: new_key(name, of_key, None, roles.get(name, USUAL)) for name, of_key in groups.items()}
        self.keys = {name: key for name, (key, _) in made.items()}
        write_keys(self.file, [kept for _, kept in made.values()])

    @property
    def auth(self) -> AuthProvider:
        """What accepts them."""
        auth = auth_from_settings(load_settings(**self.settings))
        assert auth is not None
        return auth

    def of(self, name: str) -> dict[str, str]:
        """The header with a key."""
        return {"authorization": f"Bearer {self.keys[name]}"}


def bearer(kind: str | None = None, **claims: Any) -> dict[str, str]:
    """The header with a token of the provider, with these claims in place of the usual ones; None: without it."""
    return {"authorization": f"Bearer {token(kind, **claims)}"}


def token(kind: str | None = None, **claims: Any) -> str:
    """A token of the provider; `kind` is its `typ`."""
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "groups": ["red"], "exp": int(time.time()) + 3600}
    payload = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    return signed(payload, **({"typ": kind} if kind else {}))
