"""The HTTP transport to a remote child: the SDK's streamable HTTP and SSE, over an HTTP client of ours.

A failed request arrives here as a JSON-RPC error with the client's mark, and leaves as `RemoteFailure`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from fastmcp.client.transports.base import SessionKwargs, TransportOptions
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED
from typing_extensions import Unpack

from fastmcp_aggregator.children.http.client import RemoteHttp
from fastmcp_aggregator.children.http.credentials import Credentials
from fastmcp_aggregator.children.http.failures import BROKEN
from fastmcp_aggregator.children.http.large_messages import LargeMessages
from fastmcp_aggregator.children.session.transport import WatchedTransport
from fastmcp_aggregator.children.session.transport_failure import HttpFailure, RemoteFailure
from fastmcp_aggregator.config import RemoteServer

_REDIRECT, _NOT_FOLLOWED = "Redirect to ", " not followed"
"""The SDK's words for a redirect that it leaves."""
_GIVEN_UP = "SSE stream "
"""The start of the SDK's messages when a stream that could be resumed was not to be had again."""


class RemoteTransport(WatchedTransport):
    """MCP over streamable HTTP or SSE. At most `limit` bytes of one response or event are taken."""

    def __init__(self, server: RemoteServer, limit: int, credentials: Credentials) -> None:
        super().__init__(server.key)
        self._http = RemoteHttp(server.url, credentials, transport=server.transport, limit=limit)
        self._url = str(self._http.url)
        self._limit = limit
        self.legacy_only = server.transport == "sse"

    @property
    def failure(self) -> HttpFailure | None:
        """The last failure, if nothing has gone well since."""
        return self._http.failure

    def translated(self, error: MCPError) -> MCPError:
        """The error as the child sent it, or a RemoteFailure if it was made up on this side."""
        if found := self._http.failure_in(error.error.data):
            return RemoteFailure(error.code, found)
        if error.message.startswith(_REDIRECT) and _NOT_FOLLOWED in error.message:  # with the address
            reason = "it redirects again and again, or in a way that is not followed; check its `url`"
            return RemoteFailure(error.code, HttpFailure("status", reason))
        if error.code == CONNECTION_CLOSED and error.message.startswith(_GIVEN_UP):
            return RemoteFailure(error.code, BROKEN)
        return error

    @asynccontextmanager
    async def connect_session(
        self,
        *,
        transport_options: TransportOptions | None = None,
        **session_kwargs: Unpack[SessionKwargs],
    ) -> AsyncIterator[ClientSession]:
        try:
            async with self._streams() as (reader, writer):
                watched = WatchedReader(reader, self, self._http.large_messages)
                async with self.session_class(watched, writer, **session_kwargs) as session:
                    yield session
        finally:
            self.lost.set()

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        if self.legacy_only:
            async with sse_client(self._url, httpx_client_factory=self._http.client) as streams:
                yield streams
            return
        async with (
            self._http.client() as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=self._limit) as streams,
        ):
            yield streams


class WatchedReader:
    """A session's read stream that sets `lost` when the session has read to its end, as when an SSE stream breaks.

    What the transport does not admit is left out, and large messages are put in their places.
    """

    def __init__(self, inner: Any, transport: WatchedTransport, large: LargeMessages) -> None:
        self._inner = inner
        self._transport = transport
        self._large = large

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._transport.lost.set()
        await self._inner.__aexit__(*exc_info)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while True:
            item = await self._inner.__anext__()
            if isinstance(item, SessionMessage):
                message = self._large.restored(item.message)
                if message is None or not self._transport.admits(message):
                    continue
                item.message = message
            return item

    @property
    def last_context(self) -> Any:
        """The context in which the last item was sent, where the SDK's stream keeps it."""
        return getattr(self._inner, "last_context", None)
