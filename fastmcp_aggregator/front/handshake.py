"""Handshakes (`initialize`, `server/discover`): the capabilities and instructions of the aggregator and of clients.

The capabilities are those of the children together. As long as a child has never been up, nobody knows what it will
offer, and a client reads the capabilities once: then everything is declared that could come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp_types import CLIENT_CAPABILITIES_META_KEY

from fastmcp_aggregator.callers.caller import SESSION_PLACE, Context, SoleClient, remember_declared
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.extensions import table as extensions
from fastmcp_aggregator.front.fastmcp.local import LocalComponents
from fastmcp_aggregator.library_internals import connection_of
from fastmcp_aggregator.protocol.methods import LIST_CHANGED, Era, capabilities_of
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.routing.directory import Directory

Capabilities = Mapping[str, Any]

_RELAYED: Capabilities = {**capabilities_of("server"), "extensions": extensions.ALL}
"""Everything that can be passed on, and so may turn out to be offered."""
_KEPT = frozenset({*capabilities_of("server"), "experimental"})
"""Tasks of 2025-11-25 are not."""


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
        """What FastMCP has answered last."""

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Completes what FastMCP answers to a handshake; other requests are not touched."""
        if ctx.method == "initialize":
            return await self._initialize(ctx, call_next)
        result = await call_next(ctx)
        return self._completed(result, "modern") if ctx.method == "server/discover" else result

    async def _initialize(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The handshake of a legacy client, which is told of changes from now on."""
        result = await call_next(ctx)
        connection = connection_of(ctx.session)
        declared = (ctx.params or {}).get("capabilities")
        remember_declared(connection, declared)
        self._record(declared, "legacy", SoleClient(connection))
        self._live_clients.add(ctx.session)
        place = None if ctx.request is None else ctx.request.scope.get(SESSION_PLACE)
        if place is not None:
            place.keep_until(connection.exit_stack)
        return self._completed(result, "legacy")

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

    def _completed(self, result: HandlerResult, era: Era) -> HandlerResult:
        if result is None:
            return None
        plain = result if isinstance(result, dict) else result.model_dump(by_alias=True, mode="json", exclude_none=True)
        self._own_capabilities = plain.get("capabilities") or {}
        return {**plain, **self.present(era)}

    def present(self, era: Era) -> dict[str, Any]:
        """What depends on the children, of the answer to a handshake, as of now."""
        children = self._directory.children
        return {
            "capabilities": extensions.of_era(self._capabilities(children, self._own_capabilities), era),
            "instructions": instructions(children),
        }

    def _capabilities(self, children: Sequence[Child], own: Mapping[str, Any]) -> dict[str, Any]:
        known: list[Capabilities] = [child.catalogue.capabilities for child in children if child.catalogue is not None]
        if len(known) < len(children):
            known.append(_RELAYED)
        if not self._own.is_empty:
            known.append(own)
        elif self._own.has_views:
            known.append({"tools": {}})
        return _union(known)


def _union(of_children: Sequence[Capabilities]) -> dict[str, Any]:
    """Everything that at least one child can do, and not more. That a list changed, we tell for every child."""
    together: dict[str, Any] = {}
    for capabilities in of_children:
        for name, value in capabilities.items():
            if name in _KEPT and isinstance(value, Mapping):
                together[name] = _merged(together.get(name, {}), value)
    together["extensions"] = extensions.merged(extensions.relayed(each) for each in of_children)
    for name in LIST_CHANGED:
        if name in together:
            together[name]["listChanged"] = True
    return together


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A flag is set if either sets it; of other values the first stays."""
    merged = dict(one)
    for name, value in other.items():
        merged[name] = merged.get(name) or value
    return merged


def instructions(children: Sequence[Child]) -> str:
    """One line for each server, then each server's own instructions under its key, as far as they are known now."""
    if not children:
        return "This server combines several MCP servers; none is configured."
    lines = [
        "This server combines several MCP servers. A tool, prompt or resource belongs to the server whose key its "
        "name begins with:",
        *(f"- {child.key}: {about}" if (about := child.server.description) else f"- {child.key}" for child in children),
    ]
    for child in children:
        if child.catalogue is not None and child.catalogue.instructions:
            lines += ["", f"## {child.key}", child.catalogue.instructions]
    return "\n".join(lines)
