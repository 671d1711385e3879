"""The policy stack: all policies around a call, in one order.

Audit is outermost, so that it records what the others reject; metrics next, for the same reason; then limits, which
are cheap; then what looks into the arguments. With no policy at all, nothing is done for a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.policies.policy import CallEnd, Outcome, Policy, Recorder, Rejected
from fastmcp_aggregator.protocol.json_rpc import SERVER_UNAVAILABLE, Result

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call


class PolicyStack:
    """Runs calls through policies, outermost first."""

    def __init__(self, policies: Sequence[Policy] = ()) -> None:
        self.policies = tuple(policies)
        self.recorders: tuple[Recorder, ...] = ()
        """Told of every call, after all policies."""

    async def run(self, call: Call, send: Callable[[Call], Awaitable[Result]]) -> Result:
        """The result of `send`, if every policy lets the call pass.

        Raises:
            MCPError: a policy rejected it, or the child's own error.
            ChildServerError: as `send`.
        """
        passed: list[Recorder] = [*self.recorders]
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


def _notify(passed: Sequence[Recorder], call: Call, end: CallEnd) -> None:
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
