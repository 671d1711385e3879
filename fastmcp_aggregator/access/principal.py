"""The principal: who a caller has authenticated as, qualified by what says so."""

from __future__ import annotations

from dataclasses import dataclass

ANYONE = "anonymous"
"""The principal without authentication: the client on stdio, everybody on a loopback port without auth."""

KEY_MARK = "key:"
"""How the names of those begin who have authenticated with an API key."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, as far as authentication tells. `groups` are those that it may use; None: all.

    `name` begins with its source, so that two sources never name one principal: `key:NAME`, `jwt:ISSUER#SUBJECT`; and
    where the app has an auth provider of its own, `token:SUBJECT` or `client:ID`.
    """

    name: str = ANYONE
    groups: frozenset[str] | None = None

    def may_use(self, group: str) -> bool:
        return self.groups is None or group in self.groups


ANYBODY = Principal()
"""Who has not authenticated."""
