"""How a remote child is reached, and what the client transports of all children have in common.

They tell when the connection is over (`lost`), which the SDK's session does not: it only fails the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self

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
        options = transport_options or TransportOptions()
        watched = replace(options, session_class=self._watched(options.session_class))
        try:
            async with self._inner.connect_session(transport_options=watched, **session_kwargs) as session:
                yield session
        finally:
            self.lost.set()

    def _watched(self, session_class: type[ClientSession]) -> type[ClientSession]:
        """The session class, except that its end of reading is noticed."""
        lost = self.lost

        class WatchedSession(session_class):  # type: ignore[valid-type, misc]
            def __init__(self, read_stream: Any, *args: Any, **kwargs: Any) -> None:
                super().__init__(WatchedReader(read_stream, lost), *args, **kwargs)

        return WatchedSession


class WatchedReader:
    """A session's read stream that sets `lost` when the session has read to its end, as when an SSE stream breaks."""

    def __init__(self, inner: Any, lost: asyncio.Event) -> None:
        self._inner = inner
        self._lost = lost

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._lost.set()
        await self._inner.__aexit__(*exc_info)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self._inner.__anext__()

    @property
    def last_context(self) -> Any:
        """The context in which the last item was sent, where the SDK's stream keeps it."""
        return getattr(self._inner, "last_context", None)
