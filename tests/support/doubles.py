"""Doubles: what the package's objects need, without the rest."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.callers.caller import trace_of


class Clock:
    """Monotonic seconds, which pass when `now` is set."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class NoFlowControl:
    """That of what can be read at any pace."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def call(
    principal: Principal | None = None,
    group: str = "default",
    method: str = "tools/call",
    server: str = "s",
    name: str = "t",
    params: Mapping[str, Any] | None = None,
    *,
    input_schema: Mapping[str, Any] | None = None,
    is_remote: bool = False,
    request_id: str = "",
    ref: Mapping[str, Any] | None = None,
) -> Call:
    """A call of a caller that nobody can reach."""
    caller: Any = SimpleNamespace(
        holder=None,
        principal=principal or Principal(),
        is_remote=is_remote,
        request_id=request_id,
        scope={},
        trace_id=trace_of((params or {}).get("_meta"), {}),
    )
    child: Any = SimpleNamespace(key=server)
    address = {"ref": ref} if ref is not None else {"uri" if method.startswith("resources/") else "name": name}
    return Call(caller, child, method, params or {}, address, group, input_schema)
