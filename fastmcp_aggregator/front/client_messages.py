"""Client messages: log levels, subscriptions, listen streams and changed roots."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    ServerNotification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from fastmcp_aggregator.backend import Backend
from fastmcp_aggregator.callers.caller import Caller, Context, remember_log_level
from fastmcp_aggregator.callers.outbox import Outbox
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.front.extension_requests import ExtensionRequests
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.library_internals import connection_of, request_channel_of
from fastmcp_aggregator.protocol.log_levels import LEVELS
from fastmcp_aggregator.protocol.methods import ROOTS_CHANGED, TASK_CHANGED
from fastmcp_aggregator.relay.live_clients import LiveClients
from fastmcp_aggregator.relay.task_streams import Listened, listening
from fastmcp_aggregator.routing.addresses import publish_task
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.runtime import Runtime

MOST_TASKS = 1000
"""That one stream listens for."""


class ClientMessages:
    """Serves them for one virtual server, and passes them on to the children that they concern."""

    def __init__(
        self, backend: Backend, directory: Directory, live_clients: LiveClients, extensions: ExtensionRequests
    ) -> None:
        self._backend = backend
        self._extensions = extensions
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
        await self._runtime.subscriptions.subscribe(caller.connection, serving, original, uri, caller.account)

    async def unsubscribe(self, caller: Caller, uri: str) -> None:
        await self._runtime.subscriptions.unsubscribe(caller.connection, uri)

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve the stream of changes of a modern client."""
        wanted, subscriptions, caller = params.notifications, self._runtime.subscriptions, Caller.of(ctx)
        addresses = wanted.resource_subscriptions or []
        async with (
            subscriptions.of_stream(addresses, self._directory.locate, caller.account) as subscribed,
            self._with_tasks(ctx, caller, wanted) as of_tasks,
        ):
            granted = wanted.model_copy(update={"resource_subscriptions": subscribed or None})
            listen = self._live_clients.listen_handler
            return await listen(of_tasks, params.model_copy(update={"notifications": granted}))

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
        self._early: list[Mapping[str, Any]] | None = []
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
            self._outbox.put(TASK_CHANGED.name, each)

    def put(self, task: Listened, params: Mapping[str, Any]) -> None:
        """A server says how a task is."""
        published = publish_task(dict(params), self._directory.table.publisher(task.child))
        meta = {**(params.get("_meta") or {}), SUBSCRIPTION_ID_META_KEY: self._ctx.request_id}
        told = {**published, "taskId": task.task_id, "_meta": meta}
        if self._early is None:
            self._outbox.put(TASK_CHANGED.name, told)
        elif len(self._early) < MOST_TASKS:
            self._early.append(told)


async def roots_changed(children: Iterable[Child]) -> None:
    """Notify the legacy children; a modern child gets the roots when it asks."""
    for child in children:
        if child.session is not None and child.session.era == "legacy":
            await child.session.notify(ROOTS_CHANGED.name)
