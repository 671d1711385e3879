"""The tools that each client has found by a search, which stay in its list.

A client of the older era has a connection, on which it is told that its list has changed. Requests of the modern era
stand alone, so there is nobody whose list could be another than everybody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from weakref import WeakKeyDictionary

from mcp.server.connection import Connection

_MOST = 20
"""Tools of one client; those that it has found last."""


class FoundTools:
    """By client, the names under which they are listed for it, the oldest first."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Connection, dict[str, None]] = WeakKeyDictionary()

    def of(self, client: Connection | None) -> Collection[str]:
        return () if client is None else self._of.get(client, {})

    def add(self, client: Connection, names: Iterable[str]) -> bool:
        """Keep what a client has found now; whether its list is another one."""
        kept = self._of.setdefault(client, {})
        new = [name for name in names if name not in kept]
        kept.update(dict.fromkeys(new))
        for name in list(kept)[:-_MOST]:
            del kept[name]
        return bool(new)
