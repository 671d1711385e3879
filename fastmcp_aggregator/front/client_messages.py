"""What clients tell, rather than ask: which messages and changes they want to hear of, and that their roots changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.caller import Caller, remember_log_level
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.library_internals import connection_of
from fastmcp_aggregator.protocol.log_levels import LEVELS
from fastmcp_aggregator.relay.list_changed import Audience
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.runtime import Runtime

Context = ServerRequestContext[Any, Any]


class ClientMessages:
    """Passes them on to the children that they concern."""

    def __init__(self, backend: Backend, directory: Directory, audience: Audience) -> None:
        self._backend = backend
        self._directory = directory
        self._audience = audience

    @property
    def _runtime(self) -> Runtime:
        runtime = self._backend.runtime
        assert runtime is not None  # a client is served only while it runs
        return runtime

    async def notified(self, ctx: Context) -> None:
        """A notification of a client."""
        if ctx.method == "notifications/roots/list_changed":
            await roots_changed(self._runtime.children_of(connection_of(ctx.session)))

    async def set_level(self, caller: Caller, level: str) -> None:
        """The client wants log messages from this level on.

        Raises:
            MCPError: there is no such level.
        """
        if level not in LEVELS:
            raise errors.invalid_params(f"level: must be one of {', '.join(LEVELS)}")
        remember_log_level(caller.connection, level)
        await self._runtime.logging.spread()

    async def subscribe(self, caller: Caller, child: Child, original: str, uri: str) -> None:
        """The client wants to be told when a resource changes.

        Raises:
            ChildServerError: the child cannot be asked.
            MCPError: the child's own error.
        """
        serving = await self._runtime.instances.instance_for(child, caller)
        await self._runtime.subscriptions.follow(caller.connection, serving, original, uri, caller.account)

    async def unsubscribe(self, caller: Caller, uri: str) -> None:
        """The client no longer wants to be told."""
        await self._runtime.subscriptions.leave(caller.connection, uri)

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """The stream of changes of a modern client."""
        wanted = params.notifications.resource_subscriptions or []
        following = self._runtime.subscriptions.followed_by_stream(wanted, self._directory.locate, Caller(ctx).account)
        async with following as followed:
            notifications = params.notifications.model_copy(update={"resource_subscriptions": followed or None})
            return await self._audience.listen_handler(ctx, params.model_copy(update={"notifications": notifications}))


async def roots_changed(children: Iterable[Child]) -> None:
    """Tell all that keep a session with a client; a modern child is told the roots when it asks."""
    for child in children:
        if child.session is not None and child.session.era == "legacy":
            await child.session.notify("notifications/roots/list_changed")
