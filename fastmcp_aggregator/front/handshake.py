"""`initialize` and `server/discover`: what the aggregator says of itself, and what a client says of itself.

The capabilities are those of the children together. As long as a child has never been up, nobody knows what it will
offer, and a client reads the capabilities once: then everything is declared that could come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import CLIENT_CAPABILITIES_META_KEY

from fastmcp_aggregator.callers.caller import Resident, remember_declared
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.front.fastmcp.local import LocalComponents
from fastmcp_aggregator.library_internals import connection_of
from fastmcp_aggregator.protocol import client_capabilities, extensions
from fastmcp_aggregator.protocol.server_capabilities import EVERYTHING, Capabilities, union
from fastmcp_aggregator.relay.list_changed import Audience
from fastmcp_aggregator.routing.directory import Directory

Context = ServerRequestContext[Any, Any]


class Handshakes:
    """Answers the handshakes of both eras."""

    def __init__(
        self,
        directory: Directory,
        profile: ClientProfile,
        audience: Audience,
        own: LocalComponents,
    ) -> None:
        self._directory = directory
        self._profile = profile
        self._audience = audience
        self._own = own

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Completes what FastMCP answers to a handshake; other requests are not touched."""
        if ctx.method == "initialize":
            return await self._initialize(ctx, call_next)
        result = await call_next(ctx)
        return self._completed(result) if ctx.method == "server/discover" else result

    async def _initialize(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The handshake of a legacy client, which is told of changes from now on."""
        result = await call_next(ctx)
        connection = connection_of(ctx.session)
        declared = (ctx.params or {}).get("capabilities")
        remember_declared(connection, declared)
        self._profile.met(client_capabilities.for_child(declared), Resident(connection), is_legacy=True)
        self._audience.join(ctx.session)
        return self._completed(result)

    def met_modern(self, ctx: Context) -> None:
        """A modern client has sent a request, with its capabilities."""
        meta = (ctx.params or {}).get("_meta")
        declared = meta.get(CLIENT_CAPABILITIES_META_KEY) if isinstance(meta, Mapping) else None
        self._profile.met(client_capabilities.for_child(declared), None, is_legacy=False)

    def _completed(self, result: HandlerResult) -> HandlerResult:
        if result is None:
            return None
        plain = result if isinstance(result, dict) else result.model_dump(by_alias=True, mode="json", exclude_none=True)
        children = self._directory.children
        return {
            **plain,
            "capabilities": self._capabilities(children, plain.get("capabilities") or {}),
            "instructions": instructions(children),
        }

    def _capabilities(self, children: Sequence[Child], own: Mapping[str, Any]) -> dict[str, Any]:
        known: list[Capabilities] = [
            extensions.with_relayed(child.catalogue.capabilities) for child in children if child.catalogue is not None
        ]
        if len(known) < len(children):
            known.append(EVERYTHING)
        if not self._own.are_none:
            known.append(own)
        elif self._own.are_viewed:
            known.append({"tools": {}})
        return union(known)


def instructions(children: Sequence[Child]) -> str:
    """One line for each server, then each server's own instructions under its key, as far as they are known now."""
    if not children:
        return "This server combines several MCP servers; none is configured."
    lines = [
        "This server combines several MCP servers. A tool, prompt or resource belongs to the server whose key its "
        "name begins with:",
        *(f"- {child.key}{_description(child)}" for child in children),
    ]
    for child in children:
        if child.catalogue is not None and child.catalogue.instructions:
            lines += ["", f"## {child.key}", child.catalogue.instructions]
    return "\n".join(lines)


def _description(child: Child) -> str:
    return f": {child.server.description}" if child.server.description else ""
