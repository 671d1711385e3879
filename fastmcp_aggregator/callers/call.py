"""A call: one request on its way to a server, made once and passed through every stage.

What costs something, such as a size, is worked out when a stage first wants it, and once for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.children.calls import StartedRequest
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.extensions.tasks import TaskRef
from fastmcp_aggregator.protocol.json_rpc import Result, json_size
from fastmcp_aggregator.routing.target import Target

PENDING = "held-"
"""How the `requestState` of a call begins that waits here for its client's answers; see `relay/pending_calls.py`."""


class Denied(MCPError):
    """The caller may not do this; it is told less than the `reason`."""

    def __init__(self, code: int, message: str, data: Any = None, *, reason: str) -> None:
        super().__init__(code, message, data)
        self.reason = reason


@dataclass(eq=False)
class Call:
    """One request: to be forwarded to a child, or, without one, served here."""

    caller: Caller
    target: Target
    method: str
    """`tools/call`, `resources/read`, `prompts/get` or `completion/complete`, or another that policies look at."""
    params: Mapping[str, Any]
    """The parameters as the client sent them, with the public name."""
    group: str = "default"
    began: float = field(default_factory=time.monotonic)
    spent: float = 0.0
    """Seconds of its deadline that it took to be let in at its server."""
    started: StartedRequest | None = None
    """The request to the child, if it was sent already, and is not awaited yet."""
    answer: Result = field(init=False, repr=False)
    """The result: set once it has ended without an error."""
    is_inner: bool = False
    """True if FastMCP serves it, which takes no tasks."""
    task: TaskRef | None = None

    @property
    def principal(self) -> Principal:
        return self.caller.principal

    @property
    def child(self) -> Child:
        assert self.target.child is not None
        return self.target.child

    @property
    def server(self) -> str:
        """The server key; empty: it is served here."""
        return "" if self.target.child is None else self.target.child.key

    @property
    def name(self) -> str:
        """The child's name for it: a tool's or prompt's name, also of the tool that made a task, or a URI."""
        if self.task is not None:
            return self.task.tool
        where = self.target.address.get("ref") or self.target.address
        name: str = where.get("name") or where.get("uri") or ""
        return name

    @property
    def continues(self) -> str | None:
        """The `requestState` of the pending call that a modern client continues with this one, if it does."""
        state = None if self.task is not None else self.params.get("requestState")
        is_ours = self.caller.is_modern and isinstance(state, str) and state.startswith(PENDING)
        return state if is_ours else None

    @cached_property
    def request_bytes(self) -> int:
        """The parameters' size as JSON."""
        return json_size(self.params)
