"""Client messages: log levels, subscriptions, listen streams and changed roots."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice

from mcp.shared.exceptions import MCPError
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.caller import Caller, Context, remember_log_level
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.front.guard import Guard
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.policies.limits import TOO_MANY_CALLS
from fastmcp_aggregator.protocol.log_levels import LEVELS
from fastmcp_aggregator.protocol.methods import ROOTS_CHANGED
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.relay.subscriptions import LIMIT, Subscriber
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.runtime import Runtime


class ClientMessages:
    """Serves them for one virtual server, and passes them on to the children that they concern."""

    def __init__(self, backend: Backend, directory: Directory, live_clients: LiveClients, guard: Guard) -> None:
        self._backend = backend
        self._guard = guard
        self._directory = directory
        self._live_clients = live_clients

    @property
    def _runtime(self) -> Runtime:
        runtime = self._backend.runtime
        assert runtime is not None  # a client is served only while it runs
        return runtime

    async def roots_changed(self, caller: Caller) -> None:
        """Notify the legacy children that the client alone has; a modern child gets the roots when it asks."""
        for child in self._runtime.children_of(caller.connection):
            if child.session is not None and child.session.era == "legacy":
                await child.session.notify(ROOTS_CHANGED.name)

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
        may_hear = partial(self._directory.shows, uri)
        await self._runtime.subscriptions.subscribe(
            caller.connection, serving, original, uri, caller.account, holder=caller.holder, may_hear=may_hear
        )

    async def unsubscribe(self, caller: Caller, uri: str) -> None:
        await self._runtime.subscriptions.unsubscribe(caller.connection, uri)

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve the stream of changes of a modern client."""
        wanted, caller = params.notifications, Caller.of(ctx)
        async with self._runtime.subscriptions.of_stream() as stream:
            await self._guard.around(caller, ctx.params or {}, _nothing)
            subscribed = await self._subscribed(caller, stream, wanted.resource_subscriptions or [])
            granted = wanted.model_copy(update={"resource_subscriptions": subscribed or None})
            return await self._live_clients.listen_handler(ctx, params.model_copy(update={"notifications": granted}))

    async def _subscribed(self, caller: Caller, stream: Subscriber, wanted: Iterable[str]) -> list[str]:
        """Subscribe a stream to these addresses; those that it has got."""
        subscribed: list[str] = []
        for uri in islice(dict.fromkeys(wanted), LIMIT):
            try:
                await self._subscribe_stream(caller, stream, uri)
            except MCPError as error:
                if error.code == TOO_MANY_CALLS:
                    break
            except ChildServerError:
                continue
            else:
                subscribed.append(uri)
        return subscribed

    async def _subscribe_stream(self, caller: Caller, stream: Subscriber, uri: str) -> None:
        params = {"uri": uri}
        found = await self._directory.locate(uri)
        if found is None:
            await self._guard.refuse(caller, params, params, partial(errors.unknown_uri, uri, ()))
        child, original = found
        may_hear = partial(self._directory.shows, uri)
        subscribe = self._runtime.subscriptions.subscribe
        work = partial(subscribe, stream, child, original, uri, caller.account, holder=caller.holder, may_hear=may_hear)
        await self._guard.around(caller, params, work, child=child, address={"uri": original})


async def _nothing() -> None: ...
