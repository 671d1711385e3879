"""What the client transports of all children have in common.

They tell when the connection is over (`lost`), which the SDK's session does not: it only fails the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastmcp.client.transports import ClientTransport
from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.children.http_failures import HttpFailure

LIST_CHANGED = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts"))


class WatchedTransport(ClientTransport):
    """A client transport that sets `lost` when its connection has ended, for whatever reason."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.on_list_changed: Callable[[], None] = lambda: None
        """Told of list changes that the session will not hear of."""

    @property
    def failure(self) -> HttpFailure | None:
        """What went wrong on the way to the child, where there is a way."""
        return None

    def translated(self, error: MCPError) -> MCPError:
        """The error of a request, for what it is: the child's own, or one of the way to it."""
        return error
