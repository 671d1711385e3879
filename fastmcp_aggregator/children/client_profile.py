"""What a child is told of the clients.

A legacy child is told once, in its handshake, what it may ask of its client. Where there will be one client, on stdio,
it is told what that one has declared; the handshake waits a moment for it. Where there may be many, it is told
everything that can be passed on, and a question to a client that cannot be asked it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastmcp_aggregator.children.session.ownership import Owner
from fastmcp_aggregator.protocol.client_capabilities import RELAYED

_CLIENT_WAIT = 1.0
"""Seconds that a child's handshake waits for the client's."""


class ClientProfile:
    """What a child may know of its clients."""

    def __init__(self) -> None:
        self.resident: Owner | None = None
        """The only client, if it can be asked at any time."""
        self.is_single = False
        """Whether there is one client at most."""
        self.is_awaited = False
        """Whether the only client has yet to say what it can do."""
        self._declared: Mapping[str, Any] | None = None
        self._is_legacy = False
        self._known = asyncio.Event()

    def expect_one(self) -> None:
        """There will be one client: the children are to be to it as they would be without us."""
        self.is_single = True
        self.is_awaited = not self._known.is_set()

    def met(self, declared: Mapping[str, Any], resident: Owner | None, *, is_legacy: bool) -> None:
        """A client has said what it can do."""
        if self.is_awaited:
            self._declared, self.resident, self._is_legacy = declared, resident, is_legacy
            self.is_awaited = False
            self._known.set()

    async def capabilities(self) -> Mapping[str, Any]:
        """What a child is told in its handshake; waits a moment for the client."""
        if self.is_single:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._known.wait(), _CLIENT_WAIT)
        return self._declared if self._declared is not None else RELAYED

    def eras(self, setting: str) -> tuple[str, ...]:
        """In which eras to speak with a child, in this order. The only client's own comes first: then nothing of what
        the child can do for it needs to be translated.
        """
        return ("legacy", "modern") if setting == "auto" and self._is_legacy else (setting,)
