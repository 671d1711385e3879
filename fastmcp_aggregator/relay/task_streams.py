"""Task notifications of servers, passed on to the `subscriptions/listen` streams of modern clients.

One request to each server, for all tasks of the stream that it has made, open as long as the stream. A server need not
report anything: only the tasks that it agrees to are the client's to wait for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.concurrency.waits import meanwhile
from fastmcp_aggregator.extensions.tasks import TaskRef
from fastmcp_aggregator.protocol.methods import TASK_CHANGED
from fastmcp_aggregator.relay.tasks import Tasks

_AGREE_TIMEOUT = 2.0

Deliver = Callable[["Listened", Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Listened:
    """A task that a client listens for: by which id, and where it is."""

    task_id: str
    child: Child
    ref: TaskRef


@dataclass(slots=True)
class _OfServer:
    """The tasks of one server, by its ids."""

    tasks: dict[str, Listened]
    deliver: Deliver
    agreed: asyncio.Future[list[str]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def heard(self, method: str, params: Mapping[str, Any]) -> None:
        """The server has agreed to something, or says how a task is."""
        if method == TASK_CHANGED.name:
            if isinstance(task := params.get("taskId"), str) and task in self.tasks:
                self.deliver(self.tasks[task], params)
        elif not self.agreed.done():
            agreed = params.get("notifications")
            ids = agreed.get("taskIds") if isinstance(agreed, Mapping) else None
            named = {each for each in ids if isinstance(each, str)} if isinstance(ids, list) else ()
            self.agreed.set_result([task for task in self.tasks if task in named])


@asynccontextmanager
async def listening(tasks: Tasks, wanted: list[Listened], caller: Caller, deliver: Deliver) -> AsyncIterator[list[str]]:
    """Have servers report their tasks while this is open; yields the client's ids of those that they agreed to."""
    groups: dict[tuple[str, str, str], dict[str, Listened]] = defaultdict(dict)
    for each in wanted:
        groups[each.ref.server, each.ref.instance, each.ref.replica][each.ref.task] = each
    servers = [_OfServer(group, deliver) for group in groups.values()]
    streams = [
        asyncio.create_task(
            tasks.listen([each.ref for each in server.tasks.values()], caller, server.heard), name="tasks"
        )
        for server in servers
    ]
    for stream, server in zip(streams, servers, strict=True):
        stream.add_done_callback(partial(_ended, server.agreed))
    async with meanwhile(*streams):
        if servers:
            await asyncio.wait([server.agreed for server in servers], timeout=_AGREE_TIMEOUT)
        yield [
            server.tasks[task].task_id for server in servers if server.agreed.done() for task in server.agreed.result()
        ]


def _ended(agreed: asyncio.Future[list[str]], stream: asyncio.Task[None]) -> None:
    """Ignore the reason for its end: the client asks for its tasks, too."""
    if not stream.cancelled():
        stream.exception()
    if not agreed.done():
        agreed.set_result([])
