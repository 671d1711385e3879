"""The SDK's client session, with a child's notifications and requests intercepted before it parses them.

Notifications are seen as they are read, in order, as plain JSON objects, and so are the child's requests. The methods
overridden here are private to the SDK; `tests/children/test_children_sdk_seams.py` fails when they change.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import copy_context
from typing import Any

from mcp import ClientSession
from mcp.shared.dispatcher import DispatchContext
from mcp.shared.transport_context import TransportContext
from mcp_types import ClientCapabilities
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fastmcp_aggregator.children.session.in_flight import request_of
from fastmcp_aggregator.children.session.incoming import Incoming
from fastmcp_aggregator.extensions.table import of_era
from fastmcp_aggregator.protocol.methods import Era


class RelayingSession(ClientSession):
    """A client session that declares what it is told to, and hands on what the child says unasked."""

    def __init__(
        self, reader: Any, writer: Any, *, incoming: Incoming, capabilities: Mapping[str, Any], **options: Any
    ) -> None:
        super().__init__(reader, writer, **options)
        self._reader = reader
        self._incoming = incoming
        self._declared = capabilities

    def _build_capabilities(self, version: str) -> ClientCapabilities:
        era: Era = "modern" if version in MODERN_PROTOCOL_VERSIONS else "legacy"
        return ClientCapabilities.model_validate(of_era(self._declared, era))

    def _intercept_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        related = request_of(getattr(self._reader, "last_context", None))
        if not self._incoming.on_notification(method, params or {}, related):
            super()._intercept_notification(method, params)
        return True  # nobody else hears it, and the SDK would log a traceback for each one that is malformed

    async def _on_request(
        self, dctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if method == "ping":
            return {}
        return await self._incoming.on_request(method, params or {}, request_of(copy_context()), dctx.progress)
