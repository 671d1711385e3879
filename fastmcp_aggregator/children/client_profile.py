"""The client profile: the capabilities that a child's handshake declares on behalf of the clients.

A legacy child is told once, in its handshake, what it may ask of its client. Where there will be one client, on stdio,
it is told what that one has declared; the handshake waits a moment for it. Where there may be many, it is told
everything that can be passed on, and a question to a client that cannot be asked it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastmcp_aggregator.children.session.in_flight import AnyCaller
from fastmcp_aggregator.protocol.client_capabilities import RELAYED, kind_of

ANY_CLIENT = "any"
"""The kind of client that stands for those that have not said what they can do."""


class ClientProfile:
    """The facts that a child may know of its clients."""

    def __init__(self) -> None:
        self.sole_client: AnyCaller | None = None
        """The only client, if it can be asked at any time."""
        self.is_single = False
        self.is_awaited = False
        """True until the only client has declared its capabilities."""
        self.is_nobody = False
        self.is_of_folder = False
        """True if its clients work in one folder, or have the same roots."""
        self.roots: Mapping[str, Any] | None = None
        """The answer to servers that ask for roots; None: there are none to tell."""
        self._declared: Mapping[str, Any] | None = None
        self._is_legacy = False
        self.known = asyncio.Event()
        """Set when the only client has said what it can do."""

    @classmethod
    def of_folder(cls, roots: Mapping[str, Any] | None, *, is_legacy: bool) -> ClientProfile:
        """The profile of the clients of one folder, with their roots, and what else can be passed on. Legacy clients
        can be asked more by a server that speaks their era.
        """
        profile = cls()
        profile.is_of_folder, profile.roots, profile._is_legacy = True, roots, is_legacy
        told: dict[str, Any] = {} if roots is None else {"roots": {}}
        profile._declared = {name: each for name, each in RELAYED.items() if name != "roots"} | told
        return profile

    def expect_one(self) -> None:
        """Expect one client: the children are to be to it as they would be without us."""
        self.is_single = True
        self.is_awaited = not self.known.is_set()

    def expect_none(self, *, has_roots: bool) -> None:
        """No client will come: the children are not told of roots, or that there are none, to see who asks for them."""
        self.is_nobody = True
        self._declared = {name: each for name, each in RELAYED.items() if has_roots or name != "roots"}

    def record(self, declared: Mapping[str, Any], sole_client: AnyCaller | None, *, is_legacy: bool) -> None:
        """Record the capabilities that a client has declared; of the first client alone, where one is expected."""
        if self.is_awaited:
            self._declared, self.sole_client, self._is_legacy = declared, sole_client, is_legacy
            self.is_awaited = False
            self.known.set()

    @property
    def kind(self) -> str:
        """The kind of client that a child sees: what it lists may depend on that, and on nothing else of a client."""
        if self._declared is None:
            return ANY_CLIENT
        return kind_of(self._declared, is_legacy=self._is_legacy)

    async def capabilities(self, timeout: float) -> Mapping[str, Any]:
        """The capabilities for a child's handshake; waits so many seconds for the client's."""
        if self.is_single:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.known.wait(), timeout)
        return self._declared if self._declared is not None else RELAYED

    def eras(self, setting: str) -> tuple[str, ...]:
        """The eras to try with a child, in this order. The only client's own comes first: then nothing of what the
        child can do for it needs to be translated.
        """
        return ("legacy", "modern") if setting == "auto" and self._is_legacy else (setting,)
