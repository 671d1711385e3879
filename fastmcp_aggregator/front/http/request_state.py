"""Encryption of what clients come back with: the ids of tasks, and the `requestState` of what FastMCP serves itself.

FastMCP's states are of an app's own tools, and of all that its middleware sees. Each process would have a key of its
own, and a client that comes back to another replica, or after a restart, would be refused. The states of servers that
the aggregator passes on are theirs, and not sealed by it.
"""

from __future__ import annotations

import logging
import os

from fastmcp import settings
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateSecurity

from fastmcp_aggregator.files.kept_key import kept_key

logger = logging.getLogger(__name__)


class SharedStates:
    """The SDK's codec, with the replicas' key, or the one that this user's programs keep."""

    def __init__(self) -> None:
        self._codec: AESGCMRequestStateCodec | None = None

    def share(self, key: bytes | None) -> None:
        """Seal with the replicas' key, where there are others; what was sealed before cannot be opened any more."""
        if key is not None:
            self._codec = AESGCMRequestStateCodec([key])

    def security(self, audience: str) -> RequestStateSecurity:
        """The security of one app, by a name that is the same for all replicas."""
        return RequestStateSecurity(codec=self, audience=audience)

    def seal(self, payload: bytes) -> str:
        return self._present.seal(payload)

    def unseal(self, token: str) -> bytes:
        """Open what was sealed. Raises InvalidRequestState: it was not sealed with this key, or was changed."""
        return self._present.unseal(token)

    @property
    def _present(self) -> AESGCMRequestStateCodec:
        if self._codec is None:
            self._codec = AESGCMRequestStateCodec([self._own_key()])
        return self._codec

    def _own_key(self) -> bytes:
        try:
            return kept_key(settings.home / "aggregator-key")
        except (OSError, ValueError) as error:
            logger.warning("the key for the ids of tasks cannot be kept, so they end with this program: %s", error)
            return os.urandom(32)
