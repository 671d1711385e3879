"""The other replicas: publish/subscribe and RPC, and what one replica alone makes of them.

Theory. A *notice* is published to all other replicas: something has changed, look for yourselves. Delivery is at most
once; a replica that may have lost some is told so (`on_missed`), and refreshes everything. A *request* is an RPC: it
goes to one replica, by its id, and has one answer, with stream parts before it; when that replica is gone, or the
connection is lost, it fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
"""A JSON object."""
OnMessage = Callable[[Message], None]
PeerHandler = Callable[[Message, OnMessage], Awaitable[Message]]
"""Answers a request; the second argument sends a stream part."""


class PeerLostError(Exception):
    """There is no replica of this id, or the connection to it was lost."""


class MalformedMessageError(Exception):
    """A message has another shape than a replica gives it."""


@dataclass(frozen=True, slots=True)
class PeerEvents:
    """The subscriber to what other replicas send."""

    on_notice: OnMessage
    """Handle a notice. Must not block."""
    on_missed: Callable[[], None]
    """Handle that notices may have been lost. Must not block."""
    answer: PeerHandler
    """Cancelled when the requester gives up.

    Raises: MalformedMessageError, if it is none."""


class Peers:
    """The other replicas; here of a replica that is alone, with nobody to publish to."""

    @property
    def id(self) -> str:
        """This replica's id, 16 hexadecimal digits; empty while the others cannot reach it."""
        return ""

    @asynccontextmanager
    async def open(self, events: PeerEvents) -> AsyncIterator[None]:
        """Subscribe, while this replica serves. Raises SharedStateError: what the replicas share cannot be reached."""
        yield

    def publish(self, notice: Message) -> None:
        """Send a notice to all others. Never blocks; it is lost while there is no connection."""

    async def request(self, replica: str, question: Mapping[str, Any], on_part: OnMessage) -> Message:
        """Ask one replica; return its answer. `on_part` gets the stream parts before it.

        Raises:
            PeerLostError: it is gone, or the connection was lost before it answered.
            TooLargeError: the question is larger than replicas send.
        """
        raise PeerLostError

    async def shared_key(self) -> bytes | None:
        """Return 32 random bytes, the same for all replicas; None where there are no others."""
        return None
