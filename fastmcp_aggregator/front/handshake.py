"""Handshakes (`initialize`, `server/discover`): the capabilities and instructions of the aggregator and of clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp_types import CLIENT_CAPABILITIES_META_KEY

from fastmcp_aggregator.callers.caller import (
    PRESENT_CALLER,
    SESSION_SLOT,
    Caller,
    Context,
    SoleClient,
    remember_declared,
)
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.session.in_flight import Attached
from fastmcp_aggregator.extensions import table as extensions
from fastmcp_aggregator.front.fastmcp.local import LocalComponents
from fastmcp_aggregator.front.introduction import (
    Introduced,
    capabilities_together,
    instructions_together,
)
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.library_internals import connection_of
from fastmcp_aggregator.protocol.client_capabilities import Capabilities
from fastmcp_aggregator.protocol.json_rpc import json_size
from fastmcp_aggregator.protocol.methods import Era
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.routing.directory import Directory

_LONGEST = 64 * 1024
"""Bytes of what a client says in its handshake: it is kept as long as the session is."""


class Handshakes:
    """Answers the handshakes of both eras."""

    def __init__(
        self,
        directory: Directory,
        profile: ClientProfile,
        live_clients: LiveClients,
        own: LocalComponents,
    ) -> None:
        self._directory = directory
        self._profile = profile
        self._live_clients = live_clients
        self._own = own
        self._own_capabilities: Capabilities = {}
        """The last capabilities of FastMCP."""

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Completes what FastMCP answers to a handshake; other requests are not touched."""
        if ctx.method == "initialize":
            return await self._initialize(ctx, call_next)
        result = await call_next(ctx)
        return await self._completed(ctx, result, "modern") if ctx.method == "server/discover" else result

    async def _initialize(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The handshake of a legacy client, which is told of changes from now on.

        Raises:
            MCPError: the client says more of itself than is kept of one.
        """
        if json_size(ctx.params) > _LONGEST:
            raise errors.invalid_params(f"a client may say {_LONGEST // 1024} KiB of itself")
        result = await call_next(ctx)
        connection = connection_of(ctx.session)
        declared = (ctx.params or {}).get("capabilities")
        remember_declared(connection, declared)
        caller, client = Caller.of(ctx), SoleClient(connection)
        self._record(declared, "legacy", client)
        self._live_clients.add(ctx.session, caller.account)
        if isinstance(caller.holder, Attached):
            caller.holder.between_requests = client
        slot = None if ctx.request is None else ctx.request.scope.get(SESSION_SLOT)
        if slot is not None:
            slot.keep_until(connection.exit_stack)
        return await self._completed(ctx, result, "legacy")

    def record_capabilities(self, ctx: Context) -> None:
        """Record the capabilities that a modern client sent with a request."""
        meta = (ctx.params or {}).get("_meta")
        declared = meta.get(CLIENT_CAPABILITIES_META_KEY) if isinstance(meta, Mapping) else None
        self._record(declared, "modern", None)

    def _record(self, declared: Any, era: Era, sole_client: SoleClient | None) -> None:
        is_first = self._profile.is_awaited
        self._profile.record(extensions.for_child(declared, era), sole_client, is_legacy=era == "legacy")
        if is_first:
            self._directory.client_is_known()

    async def _completed(self, ctx: Context, result: HandlerResult, era: Era) -> HandlerResult:
        if result is None:
            return None
        if not self._directory.is_same_for_all:
            PRESENT_CALLER.set(Caller.of(ctx))
            await self._directory.until_listed()
        plain = result if isinstance(result, dict) else result.model_dump(by_alias=True, mode="json", exclude_none=True)
        self._own_capabilities = plain.get("capabilities") or {}
        return {**plain, **self.present(era)}

    def present(self, era: Era) -> dict[str, Any]:
        """The parts of the answer to a handshake that depend on the children, as of now."""
        children = self._directory.children
        table = self._directory.table
        known = [Introduced(child.key, child.server.description, table.known_of(child)) for child in children]
        return {
            "capabilities": extensions.of_era(capabilities_together(known, self._own_now()), era),
            "instructions": instructions_together(known),
        }

    def _own_now(self) -> Capabilities:
        """The app's own capabilities, without those of the children."""
        if not self._own.is_empty:
            return self._own_capabilities
        return {"tools": {}} if self._own.has_views else {}
