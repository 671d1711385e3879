"""Kept sessions: what another replica needs to take over a session of a client of up to 2025-11-25, sealed in what
replicas share.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import Vault
from fastmcp_aggregator.protocol.methods import SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE

CHANGES = (SET_LEVEL.name, SUBSCRIBE.name, UNSUBSCRIBE.name)
"""The requests that change what is kept."""
SESSION_LIFETIME = 24 * 3600.0
"""Seconds that a session is kept after its handshake, its last such request, and after it was taken over."""
_KIND = "session"
_TIMEOUT = 2.0
"""Seconds in which a change is kept, or it is not: the request that makes it holds its slot until then."""
_MOST_ENDED_SESSIONS = 20_000
_LARGEST_STATE = 64 * 1024


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state from which a session is opened anew."""

    owner: Mapping[str, Any] | None
    """The credentials that have opened it, as `requestor_of` has them; None: it was opened without any."""
    handshake: Mapping[str, Any]
    """The parameters of `initialize`."""
    level: str | None = None
    """The level from which on the client wants log messages, if it has said so."""
    subscriptions: tuple[str, ...] = ()
    """URIs of the subscribed resources."""

    def after(self, method: str, params: Mapping[str, Any]) -> SessionState:
        """The state after one of the requests in `CHANGES`."""
        if method == SET_LEVEL.name:
            level = params.get("level")
            return replace(self, level=level) if isinstance(level, str) else self
        uri = params.get("uri")
        others = tuple(each for each in self.subscriptions if each != uri)
        if method == SUBSCRIBE.name and isinstance(uri, str):
            return replace(self, subscriptions=(*others, uri))
        return replace(self, subscriptions=others)


class KeptSessions:
    """The sessions of one virtual server. While nothing can be kept or read, it is as if nothing were kept.

    Whoever can write to what replicas share can put back there what they have seen. So ends are remembered here, too.
    """

    def __init__(
        self,
        vault: Vault,
        group_id: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        timeout: float = _TIMEOUT,
        most_ended: int = _MOST_ENDED_SESSIONS,
    ) -> None:
        self._vault = vault
        self._group_id = group_id
        self._clock = clock
        self._timeout = timeout
        self._most_ended = most_ended
        self._ended: dict[str, float] = {}
        """When which sessions ended, in this order; what was kept of them may be put back for as long as it counts."""

    async def read(self, session_id: str) -> SessionState | None:
        """The stored state of a session that has not ended."""
        if session_id in self._ended:
            return None
        with suppress(VaultError):
            document = await self._vault.read(_KIND, self._name(session_id))
            return None if document is None else _state_of(document)
        return None

    async def keep(self, session_id: str, state: SessionState) -> None:
        """Keep this of a session, unless it is too large."""
        document = json.dumps(asdict(state)).encode()
        if len(document) <= _LARGEST_STATE and session_id not in self._ended:
            with suppress(VaultError):
                await self._vault.keep(_KIND, self._name(session_id), document, lifetime=SESSION_LIFETIME)

    async def change(self, session_id: str, owner: Mapping[str, Any] | None, method: str, params: Any) -> None:
        """Keep what one of the requests in `CHANGES` has changed, if the session is kept and is this owner's."""
        with suppress(VaultError, TimeoutError):
            async with asyncio.timeout(self._timeout), self._vault.locked(_KIND, self._name(session_id)):
                state = await self.read(session_id)
                if state is not None and state.owner == owner:
                    await self.keep(session_id, state.after(method, params))

    def ended(self, session_id: str) -> None:
        """A session has ended, here or at another replica: it is not taken over any more."""
        now = self._clock()
        self._ended.pop(session_id, None)
        self._ended[session_id] = now
        oldest = next(iter(self._ended))
        while len(self._ended) > self._most_ended or self._ended[oldest] < now - SESSION_LIFETIME:
            del self._ended[oldest]
            oldest = next(iter(self._ended))

    async def forget(self, session_id: str) -> None:
        """A session has ended: nothing is kept of it any more."""
        self.ended(session_id)
        with suppress(VaultError):
            await self._vault.remove(_KIND, self._name(session_id))

    def _name(self, session_id: str) -> str:
        return f"{self._group_id} {session_id}"


def _state_of(document: bytes) -> SessionState:
    fields = json.loads(document)
    return SessionState(**{**fields, "subscriptions": tuple(fields["subscriptions"])})
