"""The principal: who a caller has authenticated as, qualified by what says so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fastmcp_aggregator.access.roles import CALL, EVERYTHING, METRICS, OBSERVE, OPERATE, USUAL

ANYONE = "anonymous"
"""The principal without authentication: the client on stdio, everybody on a loopback port without auth."""

KEY_MARK = "key:"
"""The prefix of the names of API keys' principals."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller. `groups` are those that it may use; None: all. `roles` are whole, with those that
    others contain.

    `name` begins with its source, so that two sources never name one principal: `key:NAME`, `jwt:ISSUER#SUBJECT`; and
    where the app has an auth provider of its own, `token:SUBJECT` or `client:ID`.
    """

    name: str = ANYONE
    groups: frozenset[str] | None = None
    roles: frozenset[str] = USUAL

    @property
    def may_call(self) -> bool:
        """True if it may use any group at all."""
        return CALL in self.roles

    @property
    def may_read_metrics(self) -> bool:
        return METRICS in self.roles

    @property
    def may_observe(self) -> bool:
        """True if it may see everything there is."""
        return OBSERVE in self.roles

    @property
    def may_operate(self) -> bool:
        return OPERATE in self.roles

    def may_use(self, group: str) -> bool:
        return self.may_call and (self.groups is None or group in self.groups)

    def may_see(self, group: str) -> bool:
        return self.may_observe or self.may_use(group)

    @property
    def bare(self) -> Principal:
        """The principal without its rights, which differ from key to key."""
        return _bare(self.name)

    def __hash__(self) -> int:  # of one field, because it is asked for some twenty times for each call
        return hash(self.name)


@lru_cache(maxsize=1000)
def _bare(name: str) -> Principal:
    """One object for all requests of a caller: a dictionary finds it without comparing."""
    return Principal(name)


ANYBODY = Principal(roles=EVERYTHING)
"""The principal of callers that need not authenticate."""
