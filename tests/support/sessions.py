"""Sessions with real child processes, without an aggregator around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.children.session.in_flight import AnyCaller
from fastmcp_aggregator.children.session.incoming import SessionEvents
from fastmcp_aggregator.children.session.session import ChildSession, open_session
from fastmcp_aggregator.children.stdio.transport import ProcessTransport
from fastmcp_aggregator.config import StdioServer
from fastmcp_aggregator.settings.options import DEFAULT_OPTIONS, EndpointOptions


class Unheard:
    """What a session reports, for those who do not care."""

    sole_client: AnyCaller | None = None

    def lists_changed(self, kinds: frozenset[Kind]) -> None: ...

    def roots(self) -> Mapping[str, Any] | None: ...

    def resource_updated(self, uri: str) -> None: ...

    def question_refused(self, method: str) -> None: ...


@asynccontextmanager
async def session_with(
    entry: Mapping[str, Any],
    *,
    era: str = "auto",
    capabilities: Mapping[str, Any] | None = None,
    events: SessionEvents | None = None,
    options: EndpointOptions = DEFAULT_OPTIONS,
) -> AsyncIterator[ChildSession]:
    """A session with a process of this `mcpServers` entry."""
    args = tuple(arg.replace("$$", "$") for arg in entry["args"])
    process = await ChildProcess.spawn(StdioServer(key="x", label="x", command=entry["command"], args=args), options)
    try:
        async with open_session(
            ProcessTransport(process),
            server_key="x",
            era=era,
            version="1",
            capabilities=capabilities or {},
            events=events or Unheard(),
        ) as session:
            yield session
    finally:
        await process.stop()
