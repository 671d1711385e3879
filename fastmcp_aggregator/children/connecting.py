"""Reaching a child at the start of a life: an endpoint, and a session in the first era that the child does not refuse.

What a child refuses is remembered for its later lives. A refusal ends the endpoint that it came through: a process that
was spoken to in the wrong era may be in any state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.endpoint import Endpoint, Launch, endpoint_for
from fastmcp_aggregator.children.session.incoming import SessionEvents
from fastmcp_aggregator.children.session.session import ChildSession, open_session
from fastmcp_aggregator.children.session.transport import Counters, WatchedTransport
from fastmcp_aggregator.config import ServerConfig
from fastmcp_aggregator.settings.options import EndpointOptions

_REFUSALS = frozenset({METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION})
"""How a child says that it does not speak an era."""


class Connecting:
    """The ways of one child's lives. `endpoint` is that of the present life."""

    def __init__(
        self,
        server: ServerConfig,
        options: EndpointOptions,
        launch: Launch,
        profile: ClientProfile,
        *,
        era: str,
        version: str,
        events: SessionEvents,
    ) -> None:
        """`era` is the setting, `version` what the child is told of ours."""
        self._key = server.key
        self._new_endpoint = partial(endpoint_for, server, options, launch)
        self._profile = profile
        self._era = era
        self._version = version
        self._events = events
        self._refused: set[str] = set()
        """Eras that the child does not speak."""
        self.tally = Counters()
        self.endpoint: Endpoint = self._new_endpoint()

    def begin(self) -> None:
        """A new life has an endpoint of its own."""
        self.endpoint = self._new_endpoint()

    async def connect(self, stack: AsyncExitStack, on_open: Callable[[], None]) -> ChildSession:
        """Start or address the child and shake hands. `on_open` is told when it can be spoken to.

        Raises:
            ChildServerError, MCPError, OSError: it could not be reached, or does not want to be.
        """
        transport = await self.endpoint.open(stack)
        on_open()
        declared = await self._profile.capabilities()
        eras = [era for era in self._profile.eras(self._era) if era not in self._refused]
        for era in eras[:-1]:
            attempt = await stack.enter_async_context(AsyncExitStack())
            try:
                return await attempt.enter_async_context(self._session_over(transport, declared, era))
            except MCPError as error:
                if error.code not in _REFUSALS:
                    raise
            self._refused.add(era)
            await attempt.aclose()
            self.endpoint.kill()
            self.begin()
            transport = await self.endpoint.open(stack)
        return await stack.enter_async_context(self._session_over(transport, declared, eras[-1]))

    def _session_over(
        self, transport: WatchedTransport, declared: Mapping[str, Any], era: str
    ) -> AbstractAsyncContextManager[ChildSession]:
        transport.tally = self.tally
        return open_session(
            transport,
            server_key=self._key,
            era=era,
            version=self._version,
            capabilities=declared,
            events=self._events,
        )
