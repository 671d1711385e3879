"""Client messages: log levels, subscriptions, listen streams and changed roots."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.caller import Caller, Context, remember_log_level
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.library_internals import connection_of
from fastmcp_aggregator.protocol.log_levels import LEVELS
from fastmcp_aggregator.protocol.methods import ROOTS_CHANGED
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.runtime import Runtime


class ClientMessages:
    """Serves them for one virtual server, and passes them on to the children that they concern."""

    def __init__(self, backend: Backend, directory: Directory, live_clients: LiveClients) -> None:
        self._backend = backend
        self._directory = directory
        self._live_clients = live_clients

    @property
    def _runtime(self) -> Runtime:
        runtime = self._backend.runtime
        assert runtime is not None  # a client is served only while it runs
        return runtime

    async def relay_notification(self, ctx: Context) -> None:
        if ctx.method == ROOTS_CHANGED.name:
            await roots_changed(self._runtime.children_of(connection_of(ctx.session)))

    async def set_level(self, caller: Caller, level: str) -> None:
        """Set the level from which on the client gets log messages.

        Raises:
            MCPError: there is no such level.
        """
        if level not in LEVELS:
            raise errors.invalid_params(f"level: must be one of {', '.join(LEVELS)}")
        remember_log_level(caller.connection, level)
        await self._runtime.log_levels.update()

    async def subscribe(self, caller: Caller, child: Child, original: str, uri: str) -> None:
        """Subscribe the client to a resource.

        Raises:
            ChildServerError: the child cannot be asked.
            MCPError: the child's own error.
        """
        serving = await self._runtime.instances.instance_for(child, caller)
        about = original, uri, caller.account, caller.holder
        await self._runtime.subscriptions.subscribe(caller.connection, serving, *about)

    async def unsubscribe(self, caller: Caller, uri: str) -> None:
        await self._runtime.subscriptions.unsubscribe(caller.connection, uri)

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve the stream of changes of a modern client."""
        wanted, subscriptions = params.notifications, self._runtime.subscriptions
        addresses = wanted.resource_subscriptions or []
        caller, locate = Caller.of(ctx), self._directory.locate
        async with subscriptions.of_stream(addresses, locate, caller.account, caller.holder) as subscribed:
            granted = wanted.model_copy(update={"resource_subscriptions": subscribed or None})
            return await self._live_clients.listen_handler(ctx, params.model_copy(update={"notifications": granted}))


async def roots_changed(children: Iterable[Child]) -> None:
    """Notify the legacy children; a modern child gets the roots when it asks."""
    for child in children:
        if child.session is not None and child.session.era == "legacy":
            await child.session.notify(ROOTS_CHANGED.name)
