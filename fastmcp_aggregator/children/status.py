"""What can be said about one child at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from fastmcp_aggregator.children.state import ChildState


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A snapshot of one child, for people and programs.

    `since` is how many seconds it has been in `state`; `retry_in` how many seconds remain until a failed child
    is tried again (None when it is not waiting); `restarts` counts starts after the first; `in_flight` is the
    number of requests it has not answered yet. `pid` is None for remote servers.
    """

    server_key: str
    state: ChildState
    since: float
    protocol_version: str | None
    pid: int | None
    restarts: int
    last_error: str | None
    retry_in: float | None
    tools: int
    resources: int
    templates: int
    prompts: int
    in_flight: int
