"""The clients in front, as far as children are told of them.

A legacy child is told once, in its handshake, what it may ask of its client. Where there will be one client, on stdio,
it is told what that one has declared; the handshake waits a moment for it. Where there may be many, it is told
everything that can be passed on, and a question to a client that cannot be asked it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.children.session.ownership import Owner

if TYPE_CHECKING:
    from fastmcp_aggregator.children.child import Child

EVERYTHING: Mapping[str, Any] = {
    "sampling": {"context": {}, "tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
"""What can be passed on."""
_CLIENT_WAIT = 1.0
"""Seconds that a child's handshake waits for the client's."""


class Clients:
    """The clients that a child is for: what it may know of them, and how they learn of its news."""

    def __init__(
        self,
        on_updated: Callable[[Child, str], None] = lambda child, uri: None,
        on_connected: Callable[[Child], None] = lambda child: None,
        on_lists_changed: Callable[[Child], None] = lambda child: None,
    ) -> None:
        self.on_updated = on_updated
        """Told the child's URI of a resource that has changed."""
        self.on_connected = on_connected
        """Told of a child that has a new session, which knows nothing of those before it."""
        self.on_lists_changed = on_lists_changed
        """Told of a child that says that its lists have changed."""
        self.resident: Owner | None = None
        """The only client, if it can be asked at any time."""
        self.is_single = False
        """Whether there is one client at most."""
        self._declared: Mapping[str, Any] | None = None
        self._is_legacy = False
        self._known = asyncio.Event()

    def expect_one(self) -> None:
        """There will be one client: the children are to be to it as they would be without us."""
        self.is_single = True

    def met(self, declared: Mapping[str, Any], resident: Owner | None, *, is_legacy: bool) -> None:
        """A client has said what it can do."""
        if self.is_single and not self._known.is_set():
            self._declared, self.resident, self._is_legacy = declared, resident, is_legacy
            self._known.set()

    async def capabilities(self) -> Mapping[str, Any]:
        """What a child is told in its handshake; waits a moment for the client."""
        if self.is_single:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._known.wait(), _CLIENT_WAIT)
        return self._declared if self._declared is not None else EVERYTHING

    def eras(self, setting: str) -> tuple[str, ...]:
        """In which eras to speak with a child, in this order. The only client's own comes first: then nothing of what
        the child can do for it needs to be translated.
        """
        return ("legacy", "modern") if setting == "auto" and self._is_legacy else (setting,)
