"""The connection to a child: an endpoint, and a session in the first era that the child does not reject.

A rejected era is remembered for later connections. Rejection ends the endpoint: a process that was spoken to in the
wrong era may be in any state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

from fastmcp_aggregator.children.client_profile import ANY_CLIENT, ClientProfile
from fastmcp_aggregator.children.endpoint import Endpoint
from fastmcp_aggregator.children.session.incoming import SessionEvents
from fastmcp_aggregator.children.session.session import ChildSession, open_session
from fastmcp_aggregator.children.session.transport import Counters, WatchedTransport

_REJECTIONS = frozenset({METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION})
"""The errors with which a child says that it does not speak an era."""


class Connecting:
    """Connects one child, again and again. `endpoint` is that of the present connection."""

    def __init__(
        self,
        server_key: str,
        new_endpoint: Callable[[], Endpoint],
        profile: ClientProfile,
        *,
        era: str,
        version: str,
        client_timeout: float,
        events: SessionEvents,
    ) -> None:
        """`era` is the setting, `version` ours as the child is told it; `client_timeout` how long its handshake waits
        for the client's.
        """
        self._key = server_key
        self._new_endpoint = new_endpoint
        self._profile = profile
        self._era = era
        self._version = version
        self._client_timeout = client_timeout
        self._events = events
        self._rejected: set[str] = set()
        """Eras that the child does not speak."""
        self.counters = Counters()
        self._dropped_before = 0
        """Lines of stderr that earlier endpoints have dropped."""
        self.client_kind = ANY_CLIENT
        """The kind of client that the child was told of."""
        self.endpoint: Endpoint = self._new_endpoint()

    @property
    def dropped_stderr_lines(self) -> int:
        """Lines of its stderr that were not passed on because they were too many."""
        return self._dropped_before + self.endpoint.dropped_stderr_lines

    def begin(self) -> None:
        self._dropped_before = self.dropped_stderr_lines
        self.endpoint = self._new_endpoint()

    async def connect(self, stack: AsyncExitStack, on_open: Callable[[], None]) -> ChildSession:
        """Open the endpoint and shake hands. `on_open` is called in between.

        Raises:
            ChildServerError, MCPError, OSError: the child could not be reached, or rejected the handshake.
        """
        transport = await self.endpoint.open(stack)
        on_open()
        declared = await self._profile.capabilities(self._client_timeout)
        self.client_kind = self._profile.kind
        eras = [era for era in self._profile.eras(self._era) if era not in self._rejected]
        for era in eras[:-1]:
            attempt = await stack.enter_async_context(AsyncExitStack())
            try:
                return await attempt.enter_async_context(self._session_over(transport, declared, era))
            except MCPError as error:
                if error.code not in _REJECTIONS:
                    raise
            self._rejected.add(era)
            await attempt.aclose()
            self.endpoint.kill()
            self.begin()
            transport = await self.endpoint.open(stack)
        return await stack.enter_async_context(self._session_over(transport, declared, eras[-1]))

    def _session_over(
        self, transport: WatchedTransport, declared: Mapping[str, Any], era: str
    ) -> AbstractAsyncContextManager[ChildSession]:
        transport.counters = self.counters
        return open_session(
            transport,
            server_key=self._key,
            era=era,
            version=self._version,
            capabilities=declared,
            events=self._events,
        )
