"""A service: a FastMCP server with limits, deadlines and a graceful shutdown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import FastMCP

from fastmcp_aggregator.service.offer import checked_tools
from fastmcp_aggregator.service.requests import Requests
from fastmcp_aggregator.service.settings import ServiceSettings


class Service(FastMCP[None]):
    """A FastMCP server with the limits of its settings. Each of its runs goes through all states.

    Args:
        name: What the server is called, unless `settings.server_name` says otherwise.
        settings: See `load_settings`.
        version: A semantic version.
        options: As for `FastMCP`, but for `lifespan` and `mask_error_details`.
    """

    def __init__(self, name: str, *, settings: ServiceSettings, version: str, **options: Any) -> None:
        self.settings = settings
        self.requests = Requests(settings)
        """Requests of the current run."""
        super().__init__(
            settings.server_name or name,
            version=version,
            lifespan=self._life,
            mask_error_details=settings.profile == "production",
            **options,
        )
        self.add_middleware(self.requests)

    @asynccontextmanager
    async def _life(self, _server: FastMCP[Any]) -> AsyncIterator[None]:
        if self.requests.lifecycle.state == "stopped":
            self.middleware.remove(self.requests)
            self.requests = Requests(self.settings)
            self.add_middleware(self.requests)
        self.requests.begin(await checked_tools(self))
        try:
            yield
        finally:
            self.requests.end()
