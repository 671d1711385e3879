"""The Policy contract: one concern around each call, asked before it and notified after it; may reject it.

Policies are quick: what takes long is not done on the way of a call. What costs something, such as a
size, is worked out when a policy first wants it, and once for all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.json_rpc import json_size
from fastmcp_aggregator.protocol.parts import ANSWER_PARTS_LIMIT, has_too_many_parts

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call

Outcome = Literal["ok", "tool_error", "input_required", "task", "error", "denied", "cancelled"]
"""`tool_error`: the child's result says isError; `input_required`: the client is to come back with answers
(2026-07-28); `task`: it goes on as a task, and a later request for the task has its outcome; `error`: the child's or
our JSON-RPC error; `denied`: a policy refused it.
"""

_LONG = 1024 * 1024


@dataclass(eq=False)  # not frozen, for one is made for each call
class CallEnd:
    """The outcome of a call. `seconds` since it began; `code` is that of a JSON-RPC error, `reason` a policy's."""

    outcome: Outcome
    seconds: float
    code: int | None = None
    reason: str = ""
    result: Mapping[str, Any] | None = None

    @cached_property
    def response_bytes(self) -> int:
        """The result's size as JSON; 0 without one. One that is long, or has many parts, is measured as it came."""
        if self.result is None:
            return 0
        if not raw_json.is_undecoded(self.result):
            return json_size(self.result)
        text = raw_json.encode(self.result)
        if len(text) > _LONG or has_too_many_parts(text, ANSWER_PARTS_LIMIT):
            return len(text)
        if b"\\u" not in text and b"\\/" not in text:  # it is written as we would write it, but for spaces
            return raw_json.compact_size(text)
        return json_size(raw_json.decode_as_read(text))


class Rejected(Exception):
    """A policy rejects a call. Becomes a JSON-RPC error; `retry_in` is in seconds, where a retry may help."""

    def __init__(self, code: int, message: str, *, retry_in: float | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_in = retry_in
        self.data = data


class Policy:
    """One concern around each call."""

    def is_ready_for(self, call: Call) -> bool:
        """True if `before` decides at once. It has no effect, and holds until something else is done."""
        return True

    def before(self, call: Call) -> Awaitable[None] | None:
        """Let the call pass; an awaitable, where the decision is made elsewhere, is awaited.

        Raises:
            Rejected: it may not be made, or not now.
        """
        return None

    def after(self, call: Call, end: CallEnd) -> None:
        """The call is over. A policy is told of every call that passed it, and of what later ones refused."""
