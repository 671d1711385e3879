"""Client messages: log levels, subscriptions, listen streams and changed roots."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

from mcp.shared.dispatcher import as_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    ServerNotification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.caller import PRESENT_CALLER, Caller, Context, remember_log_level
from fastmcp_aggregator.callers.client_roots import roots_have_changed
from fastmcp_aggregator.callers.outbox import Outbox
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.front.extension_requests import ExtensionRequests
from fastmcp_aggregator.front.guard import Guard
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.library_internals import request_channel_of
from fastmcp_aggregator.naming.uris import split_public_uri
from fastmcp_aggregator.policies.limits import TOO_MANY_CALLS
from fastmcp_aggregator.protocol.log_levels import LEVELS
from fastmcp_aggregator.protocol.methods import ROOTS_CHANGED, TASK_CHANGED
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.relay.subscriptions import Subscriber
from fastmcp_aggregator.relay.task_streams import Listened, listening
from fastmcp_aggregator.routing.addresses import publish_task
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.runtime import Runtime

MOST_TASKS = 1000
"""Tasks that one stream listens for."""


class ClientMessages:
    """Serves them for one virtual server, and passes them on to the children that they concern."""

    def __init__(
        self,
        backend: Backend,
        directory: Directory,
        live_clients: LiveClients,
        guard: Guard,
        extensions: ExtensionRequests,
    ) -> None:
        self._backend = backend
        self._guard = guard
        self._extensions = extensions
        self._directory = directory
        self._live_clients = live_clients

    @property
    def _runtime(self) -> Runtime:
        runtime = self._backend.runtime
        assert runtime is not None  # a client is served only while it runs
        return runtime

    def cancelled(self, caller: Caller, params: Mapping[str, Any]) -> None:
        """Give up a call of a modern client that waits for its next round; the SDK cancels what is not answered yet."""
        request_id: Any = as_request_id(params.get("requestId"))
        if request_id is not None:
            self._runtime.rounds.cancel(caller, str(request_id))

    async def roots_changed(self, caller: Caller) -> None:
        """Notify the legacy children that the client alone has; a modern child gets the roots when it asks. From an
        instance that others share, the client moves to one that has its new roots.
        """
        roots_have_changed(caller.connection)
        self._runtime.instances.workspaces.leave(caller.session)
        for child in self._runtime.children_of(caller.connection):
            if child.session is not None and child.session.era == "legacy":
                await child.session.notify(ROOTS_CHANGED.name)

    async def set_level(self, caller: Caller, level: str) -> None:
        """Set the level from which on the client gets log messages. Raises MCPError: there is no such level."""
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
        may_hear = partial(self._directory.shows, uri, caller.account)
        async with self._runtime.instances.serving(child, caller) as serving:
            await self._runtime.subscriptions.subscribe(
                caller.connection, serving, original, uri, caller.account, holder=caller.holder, may_hear=may_hear
            )

    async def unsubscribe(self, caller: Caller, uri: str) -> None:
        await self._runtime.subscriptions.unsubscribe(caller.connection, uri)

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve the stream of changes of a modern client."""
        wanted, caller = params.notifications, Caller.of(ctx)
        PRESENT_CALLER.set(caller)
        async with (
            self._runtime.subscriptions.of_stream() as stream,
            self._with_tasks(ctx, caller, wanted) as of_tasks,
        ):
            await self._guard.around(caller, ctx.params or {}, _nothing)
            subscribed = await self._subscribed(caller, stream, wanted.resource_subscriptions or [])
            granted = wanted.model_copy(update={"resource_subscriptions": subscribed or None})
            with self._live_clients.listening(caller.account, stream, caller.holder) as listen:
                return await listen(of_tasks, params.model_copy(update={"notifications": granted}))

    async def _subscribed(self, caller: Caller, stream: Subscriber, wanted: Iterable[str]) -> list[str]:
        """Subscribe a stream to these addresses, at all servers at once; those that it has got."""
        uris = list(islice(dict.fromkeys(wanted), self._runtime.subscriptions.limit))
        of_server: dict[str | None, list[str]] = defaultdict(list)
        for uri in uris:
            parts = split_public_uri(uri)
            of_server[parts[0] if parts else None].append(uri)
        async with asyncio.TaskGroup() as servers:
            works = [
                servers.create_task(self._subscribed_at_one(caller, stream, server, wanted))
                for server, wanted in of_server.items()
            ]
        subscribed = set(chain.from_iterable(work.result() for work in works))
        return [uri for uri in uris if uri in subscribed]

    async def _subscribed_at_one(
        self, caller: Caller, stream: Subscriber, server: str | None, wanted: Iterable[str]
    ) -> list[str]:
        """The same for one server's addresses, up to where it cannot be asked; None: they do not say whose they are."""
        subscribed: list[str] = []
        for uri in wanted:
            try:
                await self._subscribe_stream(caller, stream, uri)
            except MCPError as error:
                if error.code == TOO_MANY_CALLS:
                    break
            except ChildServerError:
                if server is not None:
                    break
            else:
                subscribed.append(uri)
        return subscribed

    async def _subscribe_stream(self, caller: Caller, stream: Subscriber, uri: str) -> None:
        params = {"uri": uri}
        found = await self._directory.locate(uri)
        if found is None:
            await self._guard.refuse(caller, params, params, partial(errors.unknown_uri, uri))
        child, original = found
        may_hear = partial(self._directory.shows, uri, caller.account)
        subscribe = self._runtime.subscriptions.subscribe
        if child.options.endpoint.access.is_per_caller or not caller.is_remote:
            child = await self._runtime.instances.instance_for(child, caller)
        work = partial(subscribe, stream, child, original, uri, caller.account, holder=caller.holder, may_hear=may_hear)
        await self._guard.around(caller, params, work, child=child, address={"uri": original})

    @asynccontextmanager
    async def _with_tasks(self, ctx: Context, caller: Caller, wanted: SubscriptionFilter) -> AsyncIterator[Context]:
        """The stream with what servers say of tasks, after it was acknowledged.

        Raises:
            MCPError: the client has not declared that it takes tasks.
        """
        task_ids = (wanted.model_extra or {}).get("taskIds")
        if not isinstance(task_ids, list) or not task_ids:
            yield ctx
            return
        listened = await self._extensions.listened_tasks(caller, task_ids[:MOST_TASKS])
        outbox = Outbox(request_channel_of(ctx.session).notify)
        stream = TaskStream(ctx, outbox, self._directory)
        try:
            async with listening(self._runtime.tasks, listened, caller, stream.put) as granted:
                stream.granted = granted
                yield replace(ctx, session=stream)  # type: ignore[arg-type]
        finally:
            outbox.close()


class TaskStream:
    """The session of a `subscriptions/listen` stream, with the tasks in its acknowledgement, and what comes of them."""

    def __init__(self, ctx: Context, outbox: Outbox, directory: Directory) -> None:
        self._ctx = ctx
        self._outbox = outbox
        self._directory = directory
        self._early: list[tuple[Listened, Mapping[str, Any]]] | None = []
        self.granted: list[str] = []

    async def send_notification(self, notification: ServerNotification, **options: Any) -> None:
        """Send what the SDK sends on the stream."""
        if not isinstance(notification, SubscriptionsAcknowledgedNotification):
            await self._ctx.session.send_notification(notification, **options)
            return
        of_tasks = {"taskIds": self.granted} if self.granted else {}
        agreed = notification.params.notifications.model_copy(update=of_tasks)
        params = notification.params.model_copy(update={"notifications": agreed})
        await self._ctx.session.send_notification(notification.model_copy(update={"params": params}), **options)
        early, self._early = self._early or [], None
        for each in early:
            self.put(*each)

    def put(self, task: Listened, params: Mapping[str, Any]) -> None:
        """A server says how a task is: the client hears of it while its group has the tool."""
        if self._early is not None:
            if len(self._early) < MOST_TASKS:
                self._early.append((task, params))
            return
        table = self._directory.table
        if table.owner_of_tool(task.ref.server, task.ref.tool) is None:
            return
        published = publish_task(dict(params), table.publisher(task.child))
        meta = {**(params.get("_meta") or {}), SUBSCRIPTION_ID_META_KEY: self._ctx.request_id}
        self._outbox.put(TASK_CHANGED.name, {**published, "taskId": task.task_id, "_meta": meta})


async def _nothing() -> None: ...
