"""API keys, and the file that has their digests; the keys themselves are in no file of ours.

A key is `fma_ID_SECRET`: the id finds its entry, the secret of 256 random bits proves that the caller has it. So its
plain SHA-256 is enough to keep, and the time that a look-up takes tells nothing about a secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fastmcp_aggregator.access.roles import USUAL

KEY_PREFIX = "fma_"
"""The prefix of every key, by which secret scanners recognise one that has leaked."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
EXPIRY_NOTICE = timedelta(days=14)
_ID_BYTES = 4
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key as it is kept. `groups` are those that its owner may use; None: all. Times are UTC."""

    id: str
    name: str
    sha256: str
    """The digest of the whole key, in hexadecimal."""
    groups: frozenset[str] | None
    created: datetime
    expires: datetime | None = None
    roles: frozenset[str] = USUAL

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= self.expires

    def expires_soon(self, now: datetime) -> bool:
        """True if its owner needs another one, or more days, within `EXPIRY_NOTICE`."""
        return self.expires is not None and now < self.expires <= now + EXPIRY_NOTICE

    def described(self) -> dict[str, Any]:
        """Its public fields, as JSON; without the digest."""
        return {
            "id": self.id,
            "name": self.name,
            "created": self.created.isoformat(),
            "groups": None if self.groups is None else sorted(self.groups),
            "roles": sorted(self.roles),
            "expires": self.expires and self.expires.isoformat(),
        }


def is_name(text: str) -> bool:
    """True if it can be the name of a key's owner."""
    return _NAME.fullmatch(text) is not None


def new_key(
    name: str, groups: Iterable[str] | None, expires: datetime | None, roles: Iterable[str] = USUAL
) -> tuple[str, ApiKey]:
    """Generate a key; return it with what is kept of it."""
    key_id = secrets.token_hex(_ID_BYTES)
    key = f"{KEY_PREFIX}{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    allowed = None if groups is None else frozenset(groups)
    created = datetime.now(UTC).replace(microsecond=0)
    return key, ApiKey(key_id, name, _digest(key), allowed, created, expires, frozenset(roles))


def id_of(key: str) -> str:
    """Return the part of a key that is not secret; empty if it is none of ours."""
    return key[len(KEY_PREFIX) :].partition("_")[0] if key.startswith(KEY_PREFIX) else ""


def is_key_of(key: str, kept: ApiKey) -> bool:
    """True if the key has the stored digest, compared in constant time."""
    return hmac.compare_digest(_digest(key).encode(), kept.sha256.encode())


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
