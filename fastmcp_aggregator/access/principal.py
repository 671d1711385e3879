"""The principal: who a caller has authenticated as."""

from __future__ import annotations

from dataclasses import dataclass

ANYONE = "anonymous"
"""The principal without authentication: the client on stdio, everybody on a loopback port without auth."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, as far as authentication tells. `groups` are those that it may use; None: all."""

    name: str = ANYONE
    groups: frozenset[str] | None = None

    def may_use(self, group: str) -> bool:
        return self.groups is None or group in self.groups


ANYBODY = Principal()
"""Who has not authenticated."""
