"""How a child is reached: client transports for a process of ours and for a remote server.

Both tell when the connection is over (`lost`), which the SDK's session does not: it only fails the next request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp.client.transports import ClientTransport, SSETransport, StreamableHttpTransport
from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from mcp import ClientSession
from typing_extensions import Unpack

from fastmcp_aggregator.children.process import ChildProcess
from fastmcp_aggregator.config import RemoteServer
from fastmcp_aggregator.pipe.streams import MessageReader, MessageWriter

logger = logging.getLogger(__name__)


class WatchedTransport(ClientTransport):
    """A client transport that sets `lost` when its connection has ended, for whatever reason."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()


class ProcessTransport(WatchedTransport):
    """MCP over the pipes of a process that somebody else owns."""

    def __init__(self, process: ChildProcess) -> None:
        super().__init__()
        self._process = process
        self._junk_lines = 0

    @asynccontextmanager
    async def connect_session(
        self,
        *,
        transport_options: TransportOptions | None = None,
        **session_kwargs: Unpack[SessionKwargs],
    ) -> AsyncIterator[ClientSession]:
        options = transport_options or TransportOptions()
        reader = MessageReader(self._process, self._report_junk)

        def end() -> None:
            reader.feed_end()
            self.lost.set()

        self._process.attach(reader.feed, end)
        writer = MessageWriter(self._process)
        async with options.session_class(reader, writer, **session_kwargs) as session:
            yield session

    def _report_junk(self, line: bytes) -> None:
        self._junk_lines += 1
        if self._junk_lines == 1:
            logger.warning(
                "server %r writes to stdout what is no MCP message (ignored; reported once): %.120r",
                self._process.server_key,
                line,
            )


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
