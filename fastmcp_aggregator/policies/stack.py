"""The policy stack: all policies around a call, in one order.

Audit is outermost, so that it records what the others reject; metrics next, for the same reason; then limits, which
are cheap; then what looks into the arguments. With no policy at all, nothing is done for a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mcp.shared.exceptions import MCPError
from msgspec import Raw

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
        admission = Admission(call, self.recorders)
        with admission.recording_failure():
            for pending in self._admit(call, admission):
                await pending
        return await admission.around(send)

    def is_ready_for(self, call: Call) -> bool:
        """Whether every policy would decide at once, in `admit_now`."""
        return all(policy.is_ready_for(call) for policy in self.policies)

    def admit_now(self, call: Call) -> Admission:
        """Let a call pass that every policy is ready for.

        Raises:
            MCPError: a policy rejected it.
        """
        admission = Admission(call, self.recorders)
        with admission.recording_failure():
            for _ in self._admit(call, admission):
                raise AssertionError("a policy that was ready has to wait")
        return admission

    def _admit(self, call: Call, admission: Admission) -> Iterator[Awaitable[None]]:
        for policy in self.policies:
            pending = policy.before(call)
            if pending is not None:
                yield pending
            admission.passed.append(policy)


class Admission:
    """The policies that have let a call pass, to be told once how it ended."""

    __slots__ = ("_call", "passed")

    def __init__(self, call: Call, recorders: Sequence[Recorder]) -> None:
        self._call = call
        self.passed: list[Recorder] = [*recorders]

    async def around(self, send: Callable[[Call], Awaitable[Result]]) -> Result:
        """The result of `send`, which the policies are told of.

        Raises:
            Exception: as `send`.
        """
        with self.recording_failure():
            result = await send(self._call)
        self.ended(result)
        return result

    def ended(self, result: Result, whole: Raw | None = None) -> None:
        """The call has a result; `whole` is the same as it came, where not all of its parts are decoded."""
        if self.passed:
            seconds = time.monotonic() - self._call.began
            self._notify(CallEnd(_outcome_of(result), seconds, result=result if whole is None else whole))

    def failed(self, error: BaseException) -> None:
        """The call has none."""
        self._notify(_failed(self._call, error))

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Tell the policies of what is raised here.

        Raises:
            MCPError: in place of a rejection.
        """
        try:
            yield
        except Rejected as rejection:
            self.failed(rejection)
            raise as_error(rejection) from None
        except BaseException as error:
            self.failed(error)
            raise

    def _notify(self, end: CallEnd) -> None:
        """Innermost first, and all of them, whatever one of them raises."""
        with ExitStack() as steps:
            for policy in self.passed:
                steps.callback(policy.after, self._call, end)


def as_error(rejection: Rejected) -> MCPError:
    """Turn a rejection into a JSON-RPC error; `data.retryIn` is in seconds."""
    data = rejection.data
    if rejection.retry_in is not None:
        data = {**(data or {}), "retryIn": round(rejection.retry_in, 3)}
    return MCPError(rejection.code, rejection.message, data)


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
