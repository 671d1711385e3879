"""How a remote child is reached, and what the client transports of all children have in common.

They tell when the connection is over (`lost`), which the SDK's session does not: it only fails the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastmcp.client.transports import ClientTransport, SSETransport, StreamableHttpTransport
from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from mcp import ClientSession
from typing_extensions import Unpack

from fastmcp_aggregator.config import RemoteServer

LIST_CHANGED = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts"))


class WatchedTransport(ClientTransport):
    """A client transport that sets `lost` when its connection has ended, for whatever reason."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.on_list_changed: Callable[[], None] = lambda: None
        """Told of list changes that the session will not hear of."""


class RemoteTransport(WatchedTransport):
    """MCP over streamable HTTP or SSE."""

    def __init__(self, server: RemoteServer) -> None:
        super().__init__()
        kind = SSETransport if server.transport == "sse" else StreamableHttpTransport
        self._inner = kind(server.url, headers=server.plain_headers())
        self.legacy_only = self._inner.legacy_only

    @asynccontextmanager
    async def connect_session(
        self,
        *,
        transport_options: TransportOptions | None = None,
        **session_kwargs: Unpack[SessionKwargs],
    ) -> AsyncIterator[ClientSession]:
        try:
            async with self._inner.connect_session(transport_options=transport_options, **session_kwargs) as session:
                yield session
        finally:
            self.lost.set()
