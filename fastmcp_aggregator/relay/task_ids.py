"""The ids of tasks as clients see them: sealed, with the way back to the server that made the task.

Theory. A task outlives the request, the connection and this process, so nothing is kept for it here: its id has all
that it takes to find it again, encrypted and signed with a key that replicas share and a restart does not change. What
is in it cannot be read, changed or made up; an id that is not of this principal is as good as none.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import asdict
from typing import Any, Protocol

from mcp.server.request_state import InvalidRequestState
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from fastmcp_aggregator.extensions.tasks import TaskRef

_MARK = b"task:"
"""Before what is sealed: the key seals other things, too."""
_LONGEST_ID = 4096


class Sealer(Protocol):
    """Authenticated encryption."""

    def seal(self, payload: bytes) -> str:
        """Encrypt and sign."""
        ...

    def unseal(self, token: str) -> bytes:
        """Open what was sealed. Raises: InvalidRequestState."""
        ...


class TaskIds:
    """Makes and reads them."""

    def __init__(self, seal: Sealer) -> None:
        self._seal = seal

    def public(self, ref: TaskRef, account: Hashable) -> str:
        """The id for the client that has authenticated as this account."""
        return self._seal.seal(_MARK + json.dumps([_plain(account), asdict(ref)], separators=(",", ":")).encode())

    def read(self, task_id: Any, account: Hashable) -> TaskRef | None:
        """The task of an id; None: it is none of ours, or not this account's."""
        owner, ref = self._opened(task_id)
        return ref if ref is not None and owner == _plain(account) else None

    def is_of_another(self, task_id: Any, account: Hashable) -> bool:
        """True if it is the id of a task, and not of this account's."""
        owner, ref = self._opened(task_id)
        return ref is not None and owner != _plain(account)

    def _opened(self, task_id: Any) -> tuple[Any, TaskRef | None]:
        """The account of an id, and its task, if it is one of ours."""
        if not isinstance(task_id, str) or len(task_id) > _LONGEST_ID:
            return None, None
        try:
            payload = self._seal.unseal(task_id)
            if not payload.startswith(_MARK):
                return None, None
            owner, ref = json.loads(payload.removeprefix(_MARK))
            return owner, TaskRef(**ref)
        except (InvalidRequestState, ValueError, TypeError):
            return None, None


def unknown_task() -> MCPError:
    """There is no such task, or it is another's: a client learns nothing of the tasks of others."""
    return MCPError(INVALID_PARAMS, "Task not found")


def _plain(account: Hashable) -> Any:
    """JSON has lists where there are tuples."""
    return [_plain(each) for each in account] if isinstance(account, tuple) else account


def lost_task(ref: TaskRef) -> MCPError:
    """The server of a task, which is this client's, is gone."""
    return MCPError(INVALID_PARAMS, f"Task not found: the server {ref.server!r} that had it is gone")
