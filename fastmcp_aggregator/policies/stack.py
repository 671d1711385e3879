"""The policy stack: all policies around a call, in one order; and the contract of a policy.

Audit is outermost, so that it records what the others reject; metrics next, for the same reason; then limits, which
are cheap; then what looks into the arguments. With no policy at all, nothing is done for a call.

Policies are quick: what takes long is not done on the way of a call. What costs something, such as a
size, is worked out when a policy first wants it, and once for all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.protocol.json_rpc import SERVER_UNAVAILABLE, Result, json_size

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call
if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call

Outcome = Literal["ok", "tool_error", "input_required", "error", "denied", "cancelled"]
"""`tool_error`: the child's result says isError; `input_required`: the client is to come back with answers
(2026-07-28); `error`: the child's or our JSON-RPC error; `denied`: a policy refused it.
"""


@dataclass(frozen=True)
class CallEnd:
    """The outcome of a call. `seconds` since it began; `code` is that of a JSON-RPC error, `reason` a policy's."""

    outcome: Outcome
    seconds: float
    code: int | None = None
    reason: str = ""
    result: Mapping[str, Any] | None = None

    @cached_property
    def response_bytes(self) -> int:
        """The result's size as JSON; 0 without one."""
        return 0 if self.result is None else json_size(self.result)


class Rejected(Exception):
    """A policy rejects a call. Becomes a JSON-RPC error; `retry_in` is in seconds, where a retry may help."""

    def __init__(self, code: int, message: str, *, retry_in: float | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_in = retry_in
        self.data = data


class Policy:
    """One concern around each call: asked before it and notified after it; may reject it."""

    def before(self, call: Call) -> Awaitable[None] | None:
        """Let the call pass; an awaitable, where the decision is made elsewhere, is awaited.

        Raises:
            Rejected: it may not be made, or not now.
        """
        return None

    def after(self, call: Call, end: CallEnd) -> None:
        """The call is over. A policy is told of every call that passed it, and of what later ones refused."""


class PolicyStack:
    """Runs calls through policies, outermost first."""

    def __init__(self, policies: Sequence[Policy] = ()) -> None:
        self.policies = tuple(policies)

    async def run(self, call: Call, send: Callable[[Call], Awaitable[Result]]) -> Result:
        """The result of `send`, if every policy lets the call pass.

        Raises:
            MCPError: a policy rejected it, or the child's own error.
            ChildServerError: as `send`.
        """
        passed: list[Policy] = []
        try:
            for policy in self.policies:
                pending = policy.before(call)
                if pending is not None:
                    await pending
                passed.append(policy)
            result = await send(call)
        except Rejected as rejection:
            _notify(passed, call, _failed(call, rejection))
            raise as_error(rejection) from None
        except BaseException as error:
            _notify(passed, call, _failed(call, error))
            raise
        _notify(passed, call, CallEnd(_outcome_of(result), time.monotonic() - call.began, result=result))
        return result


def as_error(rejection: Rejected) -> MCPError:
    """Turn a rejection into a JSON-RPC error; `data.retryIn` is in seconds."""
    data = rejection.data
    if rejection.retry_in is not None:
        data = {**(data or {}), "retryIn": round(rejection.retry_in, 3)}
    return MCPError(rejection.code, rejection.message, data)


def _notify(passed: Sequence[Policy], call: Call, end: CallEnd) -> None:
    """Innermost first, and all of them, whatever one of them raises."""
    with ExitStack() as steps:
        for policy in passed:
            steps.callback(policy.after, call, end)


def _outcome_of(result: Result) -> Outcome:
    if result.get("isError"):
        return "tool_error"
    return "input_required" if result.get("resultType") == "input_required" else "ok"


def _failed(call: Call, error: BaseException) -> CallEnd:
    seconds = time.monotonic() - call.began
    match error:
        case Rejected():
            return CallEnd("denied", seconds, error.code, error.message)
        case MCPError():
            return CallEnd("error", seconds, error.error.code)
        case ChildServerError():
            return CallEnd("error", seconds, SERVER_UNAVAILABLE)
        case asyncio.CancelledError():
            return CallEnd("cancelled", seconds)
        case _:
            return CallEnd("error", seconds)
