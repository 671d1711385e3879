"""The guard: policies around requests that call no component but cost something, and around refusals.

Subscriptions, log levels, searches and components of the app's own are counted, limited and recorded like calls; so is
a request for an unknown name, which may be one of another group's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.callers.call import Call, Denied
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.policies.stack import Policies
from fastmcp_aggregator.protocol.json_rpc import Params, Result
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.target import Target

_NOT_HERE = "there is nothing of this name in the group"
_NOTHING: Params = {}


class Guard:
    """The policies of one virtual server."""

    def __init__(self, policies: Policies, directory: Directory, group_id: str) -> None:
        self._policies = policies
        self._directory = directory
        self._group_id = group_id

    async def around(
        self,
        caller: Caller,
        params: Params,
        work: Callable[[], Awaitable[Any]],
        *,
        child: Child | None = None,
        address: Mapping[str, Any] = _NOTHING,
    ) -> Result:
        """Do the work of a request, if the policies let it pass; its result, or an empty one.

        Raises:
            MCPError: a policy rejected it, or as `work`.
        """

        call = Call(caller, Target(child, address), caller.method, params, self._group_id)
        with await self._policies.stack.admit(call):
            result = await work()
            call.answer = result if isinstance(result, dict) else {}
        return call.answer

    async def refuse(
        self,
        caller: Caller,
        params: Params,
        address: Mapping[str, Any],
        error: Callable[[], MCPError],
        *,
        reason: str | None = None,
    ) -> NoReturn:
        """Refuse what is not the caller's, for this reason, and record that. Without one it is an unknown
        name, which in a group may be one of another group's.

        Raises:
            MCPError: the error, or a policy's.
        """

        async def fail() -> None:
            if reason is None and not self._directory.is_restricted:
                raise error()  # a name for it would be a circle: the error refers to this frame
            told = error()
            raise Denied(told.code, told.message, told.error.data, reason=reason or _NOT_HERE)

        await self.around(caller, params, fail, address=address)
        raise AssertionError("what is refused has no result")

    def denied_by_name(self, caller: Caller, method: str, name: str) -> None:
        """Record the denial of a name that is not served here, and was asked for through a tool of tools."""
        if self._directory.is_restricted:
            self.record(caller, method, name, _NOT_HERE)

    def record(self, caller: Caller, method: str, name: str, reason: str) -> None:
        """Record what is left out of the answer to a request, because it is not the caller's."""
        self._policies.denied(caller.principal, self._group_id, method, name, caller.request_id, reason)
