"""The status of a child: its state machine, as a table without I/O, and a snapshot of it at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Isolation = Literal["shared", "directory", "session"]
"""The clients of an instance: all, those of one working folder or set of roots, or one."""


class ChildState(StrEnum):
    """The state of a child in its life cycle."""

    SLEEPING = "sleeping"
    """Not running because it is not needed: its components are served, and the first call starts it."""
    INITIALIZING = "initializing"
    """Being started, connected, or listed."""
    RUNNING = "running"
    """Initialised and listed: its components are served."""
    FAILED = "failed"
    """Not usable now; it is tried again."""
    STOPPED = "stopped"
    """Ended for good, together with the aggregator."""


TRANSITIONS: dict[ChildState, frozenset[ChildState]] = {
    ChildState.SLEEPING: frozenset({ChildState.INITIALIZING, ChildState.STOPPED}),
    ChildState.INITIALIZING: frozenset(
        {ChildState.SLEEPING, ChildState.RUNNING, ChildState.FAILED, ChildState.STOPPED}
    ),
    ChildState.RUNNING: frozenset({ChildState.SLEEPING, ChildState.FAILED, ChildState.STOPPED}),
    ChildState.FAILED: frozenset({ChildState.INITIALIZING, ChildState.STOPPED}),
    ChildState.STOPPED: frozenset(),
}

SEEN_BY_EVERYBODY = (
    "state",
    "since",
    "era",
    "protocol_version",
    "restarts",
    "retry_in",
    "is_cut_off",
    "catalogue_since",
    "isolation",
)
"""The fields that users of a server see. How busy it is, and its process, tells of others."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A snapshot of one child, for people and programs.

    `since` is how many seconds it has been in `state`; `retry_in` how many seconds remain until a failed child
    is tried again (None when it is not waiting); `auth_error` says that it failed because it refuses its credentials,
    `login_needed` that a person has to log in to it.
    `restarts` counts starts after the first, `unanswered` the requests that timed out, `ignored_lines` what it wrote to
    stdout that is no JSON-RPC message, and `dropped_notifications` those beyond the rate limit, `dropped_stderr_lines`
    those of its stderr that were too many to pass on; `in_flight` is the number of requests that were sent and have no
    answer yet, `waiting` the length of the queue for a slot.
    `is_cut_off` says that the circuit breaker is open: calls are rejected for a while. `pid` is None for remote
    servers. `public_error` is `last_error` for those who are not on this machine, without its commands and files.
    `catalogue_since` is when what is listed was read from it, in seconds since 1970, if that was in an earlier run.
    `callers` is how many have requests in flight.
    `instances` are the further ones that serve single client sessions or folders, or clients of the other era, of which
    `instances_starting` are not up yet.
    `isolation` is whom its instances are for, and `isolation_reason` why.
    """

    server_key: str
    state: ChildState
    since: float
    protocol_version: str | None
    pid: int | None
    restarts: int
    last_error: str | None
    auth_error: bool
    login_needed: bool
    retry_in: float | None
    tools: int
    resources: int
    templates: int
    prompts: int
    in_flight: int
    waiting: int
    is_cut_off: bool
    unanswered: int
    ignored_lines: int
    dropped_notifications: int
    public_error: str | None = None
    era: Literal["legacy", "modern"] | None = None
    instances: int = 0
    instances_starting: int = 0
    catalogue_since: float | None = None
    callers: int = 0
    isolation: Isolation = "shared"
    isolation_reason: str = ""
    dropped_stderr_lines: int = 0
