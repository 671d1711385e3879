"""All policies around a call, in one order.

Audit is outermost, so that it records what the others refuse; metrics next, for the same reason; then limits, which
are cheap; then what looks into the arguments. With no policy at all, nothing is done for a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.policies.policy import SERVER_UNAVAILABLE, End, Outcome, Policy, Recorder, Refused

Result = dict[str, Any]


class Stack:
    """Runs calls through policies, outermost first."""

    def __init__(self, policies: Sequence[Policy] = ()) -> None:
        self.policies = tuple(policies)
        self.recorders: tuple[Recorder, ...] = ()
        """Told of every call, after all policies."""

    async def run(self, call: Call, send: Callable[[Call], Awaitable[Result]]) -> Result:
        """The result of `send`, if every policy lets the call pass.

        Raises:
            MCPError: a policy refused it, or the child's own error.
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
        except Refused as refusal:
            _tell(passed, call, _failed(call, refusal))
            raise as_error(refusal) from None
        except BaseException as error:
            _tell(passed, call, _failed(call, error))
            raise
        _tell(passed, call, End(_outcome_of(result), time.monotonic() - call.began, result=result))
        return result


def as_error(refusal: Refused) -> MCPError:
    """A refusal on the wire; `data.retryIn` is in seconds."""
    data = refusal.data
    if refusal.retry_in is not None:
        data = {**(data or {}), "retryIn": round(refusal.retry_in, 3)}
    return MCPError(refusal.code, refusal.message, data)


def _tell(passed: Sequence[Recorder], call: Call, end: End) -> None:
    """Innermost first, and all of them, whatever one of them raises."""
    with ExitStack() as steps:
        for policy in passed:
            steps.callback(policy.after, call, end)


def _outcome_of(result: Result) -> Outcome:
    if result.get("isError"):
        return "tool_error"
    return "input_required" if result.get("resultType") == "input_required" else "ok"


def _failed(call: Call, error: BaseException) -> End:
    seconds = time.monotonic() - call.began
    match error:
        case Refused():
            return End("denied", seconds, error.code, error.message)
        case MCPError():
            return End("error", seconds, error.error.code)
        case ChildServerError():
            return End("error", seconds, SERVER_UNAVAILABLE)
        case asyncio.CancelledError():
            return End("cancelled", seconds)
        case _:
            return End("error", seconds)
