"""Tasks (SEP-2663): calls that servers answer with a task, and the requests for tasks, on their way to these servers.

Theory. A task's record is its server's. Here are only its id, which is sealed (`relay/task_ids.py`), and that the
server, or the instance of it, has an open task and is not to be stopped meanwhile (`relay/instances/`).

| the client | what a task becomes |
|---|---|
| has declared that it takes tasks | the task, with an id of ours; what the client asks of it goes to its server |
| legacy, or FastMCP's chain | its result, for which the server is asked here (`relay/task_polling.py`) |
| modern, without having declared it | nothing: no server makes one for it |

Such clients' calls do not declare that tasks are taken, so a server answers at once where it can; only if it says that
it cannot without (-32021) is it called again, with the declaration.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session.in_flight import AnyCaller
from fastmcp_aggregator.children.session.incoming import OnNotification
from fastmcp_aggregator.children.supervisor import Supervisor
from fastmcp_aggregator.config import StdioServer
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.extensions.tasks import TASKS, TaskRef, is_over, is_task
from fastmcp_aggregator.protocol.json_rpc import Params, Result
from fastmcp_aggregator.protocol.methods import TASKS_CANCEL, TASKS_GET
from fastmcp_aggregator.relay.instances.instances import Instances
from fastmcp_aggregator.relay.remote_rounds import notify_replica, to_message
from fastmcp_aggregator.relay.remote_tasks import RemoteCaller, RemoteTasks, TaskRequest, question_from
from fastmcp_aggregator.relay.rounds import Rounds, forwarded
from fastmcp_aggregator.relay.task_ids import TaskIds, lost_task
from fastmcp_aggregator.relay.task_polling import Polling
from fastmcp_aggregator.replicas.peers import Message, OnMessage, PeerLostError

_UNMISTAKABLE = 8
"""Characters of an id that is not found in other words."""
_LISTEN_PAUSE = 1.0
"""Seconds before a server that was lost is asked again for what it says of its tasks."""
_CANCEL_TIMEOUT = 10.0


class Tasks:
    """Calls that may become tasks, and what is asked of tasks. Owned by one `Runtime`."""

    def __init__(
        self,
        supervisor: Supervisor,
        instances: Instances,
        rounds: Rounds,
        ids: TaskIds,
        remote: RemoteTasks,
    ) -> None:
        self._supervisor = supervisor
        self._instances = instances
        self._rounds = rounds
        self._ids = ids
        self._remote = remote
        self._cancelling: set[asyncio.Task[None]] = set()

    def serving(self, call: Call) -> AbstractAsyncContextManager[Child]:
        """The child, or the instance of it, that is to answer a call; released afterwards.

        What was started, or is pending, goes on where it is; a task is asked of the server that has made it.

        Raises:
            ChildServerError: there are too many instances.
            MCPError: the server is gone, and its task with it.
        """
        child, caller, ref = call.target.child, call.caller, call.task
        assert child is not None
        if ref is not None:
            return nullcontext(child) if self._remote.has(ref.replica) else self._server_of(ref, caller)
        is_pending = "requestState" in call.params and call.continues
        is_of_one = child.context.profile.is_single and child.evidence.is_shared
        if call.started is not None or is_pending or is_of_one:
            return nullcontext(child)
        if not caller.is_remote:
            self._instances.look_at_paths(child, caller, call.params)
        return self._instances.serving(child, caller)

    async def ask(self, child: Child, call: Call) -> Result:
        """Have a call answered by a child, or an instance of it: with its result, a task, or what it asks first.

        Raises:
            ChildServerError: the child cannot be asked, or was lost while it was asked.
            MCPError: the child's own error, or why the caller cannot be asked what the child needs.
        """
        if call.task is not None:
            return await self._of_task(child, call, call.task)
        is_polled = call.is_inner or not call.caller.is_modern
        if call.is_inner:
            call.caller.take_tasks(False)
        try:
            result = await self._rounds.ask(child, call)
        except MCPError as error:
            if not is_polled or not requires_tasks(error):
                raise
            other = await self._instances.taking_tasks(child, call.child)
            if other is None:
                raise
            call.caller.take_tasks(True)
            child, result = other, await self._rounds.ask(other, call)
        if "taskId" not in result or not is_task(result):
            return result
        if is_polled:
            return await self._polled(child, call, result)
        return {**result, "taskId": self._ids.public(self._made(child, call, result), call.caller.account)}

    async def _of_task(self, child: Child, call: Call, ref: TaskRef) -> Result:
        """A client's request about a task, answered by its server."""
        try:
            result = await self._asked(child, call, ref)
        except MCPError as error:
            # The message of a server may have its own id of the task, which tells the client nothing.
            is_unmistakable = len(ref.task) >= _UNMISTAKABLE
            message = error.error.message.replace(ref.task, call.params["taskId"]) if is_unmistakable else ""
            raise MCPError(error.error.code, message or error.error.message, error.error.data) from error
        return {**result, "taskId": call.params["taskId"]} if "taskId" in result else result

    async def listen(self, refs: Sequence[TaskRef], caller: AnyCaller, on_notification: OnNotification) -> None:
        """Have a server report tasks that it has made, until this is cancelled or the server has no more to say.

        Raises:
            ChildServerError, MCPError, PeerLostError: it cannot be asked.
        """
        if self._remote.has(refs[0].replica):
            await self._remote.listen(refs, caller, on_notification)
        else:
            await self._listen_here(refs, caller, on_notification)

    async def answer(self, message: Message, say: OnMessage) -> Message:
        """Answer `ask` for a client that has come to another replica; see `Peers`."""
        question = question_from(message)
        if question.method:
            return await to_message(self._asked_by_replica(question))
        await self._listen_here(question.refs, question.caller, partial(notify_replica, say))
        return {}

    @asynccontextmanager
    async def _server_of(self, ref: TaskRef, caller: AnyCaller) -> AsyncIterator[Child]:
        """The child, or the instance of it, that has made a task, or has its caller's account; released afterwards.

        Raises:
            MCPError: it is gone, and its task with it.
            ChildServerError: there are too many instances.
        """
        child = self._instances.tasks.named(ref.instance) if ref.instance else self._supervisor.children.get(ref.server)
        if child is None or child.key != ref.server:
            raise lost_task(ref)
        if has_accounts(child) and isinstance(caller, Caller):
            async with self._instances.serving(child, caller) as instance:
                yield instance
            return
        try:
            yield child
        finally:
            if ref.instance:
                self._instances.release(child)

    async def close(self) -> None:
        """Do not wait any longer for servers to take note of cancelled tasks."""
        for task in self._cancelling:
            task.cancel()
        await asyncio.gather(*self._cancelling, return_exceptions=True)

    async def _asked(self, child: Child, call: Call, ref: TaskRef) -> Result:
        if self._remote.has(ref.replica):
            try:
                return await self._remote.ask(ref, call)
            except PeerLostError:
                if ref.instance:
                    raise lost_task(ref) from None
                # Its process is gone; but where the server keeps its tasks elsewhere, ours knows it.
        return await self._ask_here(child, ref, call.method, call.params, call.caller)

    async def _asked_by_replica(self, question: TaskRequest) -> Result:
        async with self._server_of(question.refs[0], question.caller) as child:
            return await self._ask_here(child, question.refs[0], question.method, question.params, question.caller)

    async def _ask_here(self, child: Child, ref: TaskRef, method: str, params: Params, caller: AnyCaller) -> Result:
        result = await child.calls.request(method, forwarded(child, params, {"taskId": ref.task}), caller=caller)
        if method == TASKS_GET.name and not has_accounts(child):
            self._instances.tasks.hold(child, ref.task, result.get("ttlMs"), over=is_over(result))
        return result

    def _made(self, child: Child, call: Call, result: Result) -> TaskRef:
        if has_accounts(child):  # any connection with the task's account can ask for it, also one to come
            return TaskRef(child.key, result["taskId"], call.name)
        is_instance = child is not call.child
        name = self._instances.tasks.hold(child, result["taskId"], result.get("ttlMs"))
        is_here = is_instance or isinstance(child.server, StdioServer)
        replica = self._remote.own_id if is_here else ""
        return TaskRef(child.key, result["taskId"], call.name, replica, name if is_instance else "")

    async def _listen_here(self, refs: Sequence[TaskRef], caller: AnyCaller, on_notification: OnNotification) -> None:
        """A server that has a new session is asked again."""
        async with self._server_of(refs[0], caller) as child:
            while True:
                session = await child.calls.session()
                if session.era != "modern":
                    return
                try:
                    await session.listen_for_tasks([ref.task for ref in refs], caller, on_notification)
                except MCPError as error:
                    if not session.is_over(error):
                        raise
                if not session.lost.is_set():
                    return
                await asyncio.sleep(_LISTEN_PAUSE)

    async def _polled(self, child: Child, call: Call, task: Result) -> Result:
        """The result of a task, for a client that takes none; cancelled with the call."""

        async def ask(method: str, **more: Any) -> Result:
            return await child.calls.request(method, {"taskId": task["taskId"], **more}, caller=call.caller)

        polling = Polling(ask, call.caller)
        try:
            return await polling.result(task)
        finally:
            if not polling.is_over:
                self._cancel(child, task["taskId"])

    def _cancel(self, child: Child, task_id: str) -> None:
        cancelling = asyncio.create_task(self._cancelled(child, task_id), name=f"cancel:{child.key}")
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)

    async def _cancelled(self, child: Child, task_id: str) -> None:
        caller = RemoteCaller(None, {"extensions": {TASKS.identifier: {}}})
        try:
            async with asyncio.timeout(_CANCEL_TIMEOUT):
                await child.calls.request(TASKS_CANCEL.name, {"taskId": task_id}, caller=caller)
        except (ChildServerError, MCPError, TimeoutError):
            return  # it has ended, or the server has


def has_accounts(child: Child) -> bool:
    """True if each caller has an account of its own at a server."""
    return child.options.endpoint.access.is_per_caller


def requires_tasks(error: MCPError) -> bool:
    """True if a server cannot serve a call for a client that takes no tasks."""
    if error.error.code != MISSING_REQUIRED_CLIENT_CAPABILITY or not isinstance(error.error.data, Mapping):
        return False
    required = error.error.data.get("requiredCapabilities")
    extensions = required.get("extensions") if isinstance(required, Mapping) else None
    return isinstance(extensions, Mapping) and TASKS.identifier in extensions
