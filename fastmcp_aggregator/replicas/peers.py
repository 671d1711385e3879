"""The other replicas, as far as this one talks with them: what may be said, and what it is to be alone.

Theory. A replica says two kinds of things. A *notice* is for all others: something has changed, look for yourselves.
It may be lost; then the others are told to look at everything (`missed`). A *question* is for one replica, by its id,
and has one answer, with parts before it; when the replica is not there, or the way to it breaks, it fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

Message = dict[str, Any]
"""JSON."""
Say = Callable[[Message], None]


class PeerLostError(Exception):
    """There is no such replica, or not any more."""


@dataclass(frozen=True, slots=True)
class PeerEvents:
    """What is done with what the others say."""

    notice: Say
    """Hear a notice. Must not block."""
    missed: Callable[[], None]
    """Notices may have been lost. Must not block."""
    answer: Callable[[Message, Say], Awaitable[Message]]
    """Answer a question; the second argument sends a part of the answer. Cancelled when the asker gives up."""


class Peers(Protocol):
    """The other replicas."""

    @property
    def id(self) -> str:
        """By which the others reach this one, 16 hexadecimal digits; empty while there is no way to it."""
        ...

    def open(self, ears: PeerEvents) -> AbstractAsyncContextManager[None]:
        """While this replica serves.

        Raises:
            SharedStateError: what the replicas share cannot be reached.
        """
        ...

    def tell(self, notice: Message) -> None:
        """Send a notice to all others. Never blocks; while there is no way to them it is lost."""

    async def ask(self, replica: str, question: Mapping[str, Any], hear: Say) -> Message:
        """The answer of one replica; `hear` gets the parts before it.

        Raises:
            PeerLostError: it is not there, or was lost before it answered.
        """
        ...

    async def shared_key(self) -> bytes | None:
        """32 random bytes that are the same for all replicas; None: there are no others."""
        ...


class NoPeers:
    """No other replicas: one machine, everything in memory."""

    id = ""

    @asynccontextmanager
    async def open(self, ears: PeerEvents) -> AsyncIterator[None]:
        """See `Peers`."""
        yield

    def tell(self, notice: Message) -> None:
        """See `Peers`."""

    async def ask(self, replica: str, question: Mapping[str, Any], hear: Say) -> Message:
        """See `Peers`."""
        raise PeerLostError

    async def shared_key(self) -> bytes | None:
        """See `Peers`."""
        return None
