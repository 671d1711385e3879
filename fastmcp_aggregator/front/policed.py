"""The forwarder of one face, with the face's policies around every call; both ways to a child lead through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.access.principals import principal_of
from fastmcp_aggregator.catalogue.directory import Directory
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.front.errors import unexpected
from fastmcp_aggregator.middleware.call import Call, Principal
from fastmcp_aggregator.middleware.stack import Stack
from fastmcp_aggregator.relay.forwarding import Forwarder, Params, Result


class PolicedForwarder:
    """Forwards what the policies let pass. Without policies it costs nothing."""

    def __init__(self, forwarder: Forwarder, directory: Directory, group_id: str, stack: Stack) -> None:
        self._forwarder = forwarder
        self._directory = directory
        self._group_id = group_id
        self._stack = stack

    async def forward(
        self, ctx: ServerRequestContext[Any, Any], child: Child, params: Params, address: Mapping[str, Any]
    ) -> Result:
        """See `Forwarder.forward`. What nobody has foreseen is contained here: FastMCP would tell the text of it.

        Raises:
            MCPError: also when a policy refuses.
        """
        try:
            if not self._stack:
                return await self._forwarder.forward(ctx, child, params, address)
            call = self._call(ctx, child, params, address)
            return await self._stack.run(call, lambda: self._forwarder.forward(ctx, child, params, address))
        except (MCPError, ChildServerError):
            raise
        except Exception as error:
            raise unexpected(error, f"{ctx.method} to the server {child.key!r}") from None

    def _call(
        self, ctx: ServerRequestContext[Any, Any], child: Child, params: Params, address: Mapping[str, Any]
    ) -> Call:
        ref = address.get("ref") or {}
        name = address.get("name") or address.get("uri") or ref.get("name") or ref.get("uri") or ""
        is_tool = ctx.method == "tools/call"
        return Call(
            principal=principal_behind(ctx),
            group=self._group_id,
            method=ctx.method,
            server=child.key,
            name=name,
            params=params,
            input_schema=self._directory.schema_of(child, name) if is_tool else None,
            is_remote=ctx.request is not None,
            request_id=str(ctx.request_id),
        )


def principal_behind(ctx: ServerRequestContext[Any, Any]) -> Principal:
    """Who has sent a request, as far as HTTP authentication tells."""
    scope = getattr(ctx.request, "scope", None) or {}
    return principal_of(getattr(scope.get("user"), "access_token", None))
