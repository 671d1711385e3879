"""What clients tell, rather than ask: which messages and changes they want to hear of, and that their roots changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from fastmcp_aggregator.callers.caller import Caller, remember_log_level
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.instances import Instances
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.protocol.log_levels import LEVELS
from fastmcp_aggregator.relay.list_changed import Audience
from fastmcp_aggregator.relay.logging import Logging
from fastmcp_aggregator.relay.subscriptions import Subscriptions
from fastmcp_aggregator.routing.directory import Directory

Context = ServerRequestContext[Any, Any]


class ClientMessages:
    """Passes them on to the children that they concern."""

    def __init__(
        self,
        directory: Directory,
        children_of: Callable[[Connection], Iterable[Child]],
        instances: Callable[[], Instances],
        audience: Audience,
        logging: Logging,
        subscriptions: Subscriptions,
    ) -> None:
        """`children_of` tells which children are there for one legacy client alone."""
        self._directory = directory
        self._children_of = children_of
        self._instances = instances
        self._audience = audience
        self._logging = logging
        self._subscriptions = subscriptions

    async def notified(self, ctx: Context) -> None:
        """A notification of a client."""
        if ctx.method == "notifications/roots/list_changed":
            await roots_changed(self._children_of(ctx.session._connection))

    async def set_level(self, ctx: Context, level: str) -> None:
        """The client wants log messages from this level on.

        Raises:
            MCPError: there is no such level.
        """
        if level not in LEVELS:
            raise errors.invalid_params(f"level: must be one of {', '.join(LEVELS)}")
        remember_log_level(ctx.session._connection, level)
        await self._logging.spread()

    async def subscribe(self, ctx: Context, child: Child, original: str, uri: str) -> None:
        """The client wants to be told when a resource changes.

        Raises:
            ChildServerError: the child cannot be asked.
            MCPError: the child's own error.
        """
        caller = Caller(ctx)
        serving = await self._instances().serving(child, caller)
        await self._subscriptions.follow(ctx.session._connection, serving, original, uri, caller.principal)

    async def unsubscribe(self, ctx: Context, uri: str) -> None:
        """The client no longer wants to be told."""
        await self._subscriptions.leave(ctx.session._connection, uri)

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """The stream of changes of a modern client."""
        wanted = params.notifications.resource_subscriptions or []
        following = self._subscriptions.followed_by_stream(wanted, self._directory.locate, Caller(ctx).principal)
        async with following as followed:
            notifications = params.notifications.model_copy(update={"resource_subscriptions": followed or None})
            return await self._audience.listen_handler(ctx, params.model_copy(update={"notifications": notifications}))


async def roots_changed(children: Iterable[Child]) -> None:
    """Tell all that keep a session with a client; a modern child is told the roots when it asks."""
    for child in children:
        if child.session is not None and child.session.era == "legacy":
            await child.session.notify("notifications/roots/list_changed")
