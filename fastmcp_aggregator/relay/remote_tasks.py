"""Remote tasks: a client has come to another replica than the one whose process or instance has its task."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.children.session.ownership import OnProgress
from fastmcp_aggregator.extensions.tasks import TaskRef
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.relay.remote_rounds import frozen, result_from
from fastmcp_aggregator.replicas.peers import Message, Peers
from fastmcp_aggregator.replicas.wire import is_replica_id


class RemoteOwner:
    """Who a request is sent for that is at another replica, or nobody who could be told or asked anything."""

    wants_progress = False
    log_level = None
    headers = None

    def __init__(self, account: Hashable, capabilities: Mapping[str, Any]) -> None:
        self.account = account
        self.capabilities = capabilities
        self.identity: Hashable = object()

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Do nothing."""

    def hang_up(self) -> None:
        """Do nothing."""

    async def ask(self, method: str, params: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """Raises: MCPError: nobody can be asked."""
        raise MCPError(INVALID_REQUEST, f"{method}: there is no client that could be asked")


@dataclass(frozen=True, slots=True)
class Question:
    """What another replica asks of a task that is here."""

    ref: TaskRef
    method: str
    params: Mapping[str, Any]
    owner: RemoteOwner


class RemoteTasks:
    """Asks the other replicas."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    @property
    def own_id(self) -> str:
        """By which the others reach this replica; empty: they cannot."""
        return self._peers.id

    def has(self, replica: str) -> bool:
        """Whether a replica, as an id names it, is another."""
        return bool(self._peers.id) and is_replica_id(replica) and replica != self._peers.id

    async def ask(self, ref: TaskRef, call: Call) -> Result:
        """Have the replica that has a task ask its server.

        Raises:
            PeerLostError: the replica is gone.
            ChildServerError, MCPError: as if the task were here.
        """
        question = {
            "task": asdict(ref),
            "method": call.method,
            "params": {name: value for name, value in call.params.items() if name != "_meta"},
            "account": call.caller.account,
            "capabilities": dict(call.caller.capabilities),
        }
        return result_from(await self._peers.request(ref.replica, question, lambda part: None))


def question_from(message: Message) -> Question:
    """What another replica asks. Raises: KeyError, TypeError."""
    owner = RemoteOwner(frozen(message["account"]), message["capabilities"])
    return Question(TaskRef(**message["task"]), message["method"], message["params"], owner)
