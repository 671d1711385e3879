"""The ways between a child and a client: every combination of fronts, of eras, and of transports of the child."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest
from support.wire import RawClient
from support.wire_http import HttpClient

SERVERS = {
    "old": "a legacy child on stdio",
    "new": "a modern child on stdio",
    "old-http": "a legacy child over HTTP",
    "new-http": "a modern child over HTTP",
    "both": "a child of both eras",
}
"""The children behind every front, by server key."""


@dataclass(frozen=True, slots=True)
class Way:
    """`front` is what the client connects to: a process on stdio that is its alone, or a server over HTTP."""

    front: str
    is_modern: bool
    """Whether the client is."""
    server: str

    @property
    def child_is_modern(self) -> bool:
        """As far as this client is served by it: who can be asked is served in its own era, if the child has it."""
        return self.server.startswith("new") or (self.server == "both" and self.is_modern)

    @property
    def is_bridged(self) -> bool:
        """Whether a legacy child's questions must become a modern client's rounds."""
        return self.is_modern and not self.child_is_modern

    def __str__(self) -> str:
        era = "modern" if self.is_modern else "legacy"
        return f"{SERVERS[self.server]}, a {era} client {'on stdio' if self.front == 'stdio' else 'over HTTP'}"


WAYS = [Way(*way) for way in product(("stdio", "http"), (False, True), SERVERS)]


def ways(which: Callable[[Way], bool] = lambda way: True) -> pytest.MarkDecorator:
    """Run a test on these ways; it gets `way`, and `client` is connected accordingly."""
    chosen = [
        pytest.param(way, marks=pytest.mark.process if way.front == "stdio" else ()) for way in WAYS if which(way)
    ]
    return pytest.mark.parametrize("way", chosen, ids=str)


EVERY_WAY = ways()


def cancel(client: RawClient, request_id: int) -> None:
    """Cancel a request, in the way of the client's era and transport."""
    if client.is_modern and isinstance(client, HttpClient):
        client.hang_up(request_id)
    else:
        client.notify("notifications/cancelled", {"requestId": request_id})
