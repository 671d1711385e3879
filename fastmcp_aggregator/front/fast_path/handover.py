"""The handover between the two paths, where the full path has the SDK's context of a request."""

from __future__ import annotations

from typing import Any

from mcp.shared.dispatcher import as_request_id
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fastmcp_aggregator.callers.caller import Context
from fastmcp_aggregator.front.fast_path.call import FastCall
from fastmcp_aggregator.front.fast_path.path import FastPath
from fastmcp_aggregator.front.fast_path.pipe import PIPE_FRONT
from fastmcp_aggregator.library_internals import connection_of, request_channel_of

SCOPE_KEY = "fastmcp_aggregator.fast_call"
"""The key of an HTTP request's scope for a list with the call that the full path is to take over, and takes from it.

All copies of the scope have the same list, so none of them refers to the call afterwards, which refers to them.
"""


def taken_over_call(ctx: Context) -> FastCall | None:
    """The call that this request began on the fast path; those that follow it on a pipe may take that path."""
    if ctx.request is not None:
        waiting: list[FastCall] = getattr(ctx.request, "scope", {}).get(SCOPE_KEY, [])
        return waiting.pop() if waiting else None
    front = PIPE_FRONT.get()
    if front is None or ctx.request_id is None:
        return None
    front.connected(connection_of(ctx.session), is_modern=ctx.protocol_version in MODERN_PROTOCOL_VERSIONS)
    return front.resume(ctx.request_id)


def cancel_call(ctx: Context, fast_path: FastPath) -> None:
    """Cancel the request that a `notifications/cancelled` names, if it is on the fast path."""
    request_id: Any = as_request_id((ctx.params or {}).get("requestId"))
    if request_id is None:
        return
    front = PIPE_FRONT.get()
    if ctx.request is not None:
        fast_path.cancel(connection_of(ctx.session), request_id)
    elif front is not None:
        front.cancel(request_id)


def leave_unanswered(ctx: Context | None) -> None:
    """Have nothing sent for a request that its client has cancelled on a pipe; an HTTP response has to have a body."""
    if ctx is not None and ctx.request is None:
        request_channel_of(ctx.session).cancel_requested.set()
