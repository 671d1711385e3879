"""The state machine of a child: its states and the transitions between them, as a table without I/O."""

from __future__ import annotations

from enum import StrEnum


class ChildState(StrEnum):
    """Where a child is in its life."""

    INITIALIZING = "initializing"
    """Being started, connected, or listed."""
    RUNNING = "running"
    """Initialised and listed: its components are served."""
    FAILED = "failed"
    """Not usable now; it is tried again."""
    STOPPED = "stopped"
    """Ended for good, together with the aggregator."""


TRANSITIONS: dict[ChildState, frozenset[ChildState]] = {
    ChildState.INITIALIZING: frozenset({ChildState.RUNNING, ChildState.FAILED, ChildState.STOPPED}),
    ChildState.RUNNING: frozenset({ChildState.FAILED, ChildState.STOPPED}),
    ChildState.FAILED: frozenset({ChildState.INITIALIZING, ChildState.STOPPED}),
    ChildState.STOPPED: frozenset(),
}


def may_become(now: ChildState, then: ChildState) -> bool:
    """Whether the table has this transition."""
    return then in TRANSITIONS[now]
