"""Remote tasks: a client has come to another replica than the one whose process or instance has its task."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.children.session.in_flight import AnyCaller, OnProgress
from fastmcp_aggregator.children.session.incoming import OnNotification
from fastmcp_aggregator.extensions.tasks import TaskRef
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.relay.remote_rounds import frozen, result_from
from fastmcp_aggregator.replicas.peers import MalformedMessageError, Message, Peers
from fastmcp_aggregator.replicas.wire import is_replica_id


class RemoteCaller:
    """The caller at another replica that a request is sent for, or nobody who could be told or asked anything."""

    wants_progress = False
    log_level = None
    headers = None

    def __init__(self, account: Hashable, capabilities: Mapping[str, Any]) -> None:
        self.account = self.holder = account
        self.capabilities = capabilities
        self.identity: Hashable = object()

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Do nothing."""

    def hang_up(self) -> None:
        """Do nothing."""

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """Raises: MCPError: there is no client to ask."""
        raise MCPError(INVALID_REQUEST, f"{method}: there is no client that could be asked")


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A request of another replica about tasks that are here; without a method, for their state."""

    refs: Sequence[TaskRef]
    method: str
    params: Mapping[str, Any]
    caller: RemoteCaller


class RemoteTasks:
    """Asks the other replicas."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    @property
    def own_id(self) -> str:
        """The id of this replica; empty: others cannot reach it."""
        return self._peers.id

    def has(self, replica: str) -> bool:
        """True if a replica, as an id names it, is another."""
        return bool(self._peers.id) and is_replica_id(replica) and replica != self._peers.id

    async def ask(self, ref: TaskRef, call: Call) -> Result:
        """Have the replica that has a task ask its server.

        Raises:
            PeerLostError: the replica is gone.
            ChildServerError, MCPError: as if the task were here.
        """
        params = {name: value for name, value in call.params.items() if name != "_meta"}
        question = _message([ref], call.method, params, call.caller)
        return result_from(await self._peers.request(ref.replica, question, lambda part: None))

    async def listen(self, refs: Sequence[TaskRef], caller: AnyCaller, on_notification: OnNotification) -> None:
        """Have the replica that has these tasks tell how they are, as long as this goes on.

        Raises:
            PeerLostError: the replica is gone.
        """
        question = _message(refs, "", {}, caller)
        await self._peers.request(
            refs[0].replica, question, lambda part: on_notification(part["method"], part["params"])
        )


def _message(refs: Sequence[TaskRef], method: str, params: Mapping[str, Any], caller: AnyCaller) -> Message:
    return {
        "tasks": [asdict(ref) for ref in refs],
        "method": method,
        "params": dict(params),
        "account": caller.account,
        "capabilities": dict(caller.capabilities or {}),
    }


def question_from(message: Message) -> TaskRequest:
    """The request in another replica's message.

    Raises:
        MalformedMessageError
    """
    match message:
        case {
            "tasks": [_, *_] as tasks,
            "method": str(method),
            "params": dict(params),
            "account": account,
            "capabilities": dict(capabilities),
        }:
            return TaskRequest(
                [_ref(task) for task in tasks], method, params, RemoteCaller(frozen(account), capabilities)
            )
        case _:
            raise MalformedMessageError


def _ref(fields: Any) -> TaskRef:
    names = {each.name for each in dataclass_fields(TaskRef)}
    if not isinstance(fields, dict) or fields.keys() != names or not all(isinstance(v, str) for v in fields.values()):
        raise MalformedMessageError
    return TaskRef(**fields)
