"""Encryption of the `requestState` of what FastMCP serves itself: an app's own tools, and all that its middleware sees.

Each process would have a key of its own, and a client that comes back to another replica would be refused. The states
of servers that the aggregator passes on are theirs, and not sealed by it.
"""

from __future__ import annotations

import os

from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateSecurity


class SharedStates:
    """The SDK's codec, with a key of its own until the replicas' key is known."""

    def __init__(self) -> None:
        self._codec = AESGCMRequestStateCodec([os.urandom(32)])

    def share(self, key: bytes | None) -> None:
        """Seal with the replicas' key, where there are others; what was sealed before cannot be opened any more."""
        if key is not None:
            self._codec = AESGCMRequestStateCodec([key])

    def security(self, audience: str) -> RequestStateSecurity:
        """For one app, by a name that is the same for all replicas."""
        return RequestStateSecurity(codec=self, audience=audience)

    def seal(self, payload: bytes) -> str:
        """Encrypt and sign a payload."""
        return self._codec.seal(payload)

    def unseal(self, token: str) -> bytes:
        """Open what was sealed.

        Raises:
            InvalidRequestState: it was not sealed with this key, or was changed.
        """
        return self._codec.unseal(token)
