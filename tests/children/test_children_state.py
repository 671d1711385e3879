"""The table of a child's states."""

from __future__ import annotations

from itertools import product

import pytest

from fastmcp_aggregator.status.server_status import TRANSITIONS, ChildState

SLEEPING, INITIALIZING, RUNNING, FAILED, STOPPED = ChildState

ALLOWED = {
    (SLEEPING, INITIALIZING),
    (SLEEPING, STOPPED),
    (INITIALIZING, SLEEPING),
    (INITIALIZING, RUNNING),
    (INITIALIZING, FAILED),
    (INITIALIZING, STOPPED),
    (RUNNING, SLEEPING),
    (RUNNING, FAILED),
    (RUNNING, STOPPED),
    (FAILED, INITIALIZING),
    (FAILED, STOPPED),
}


@pytest.mark.parametrize(("now", "then"), list(product(ChildState, ChildState)))
def test_exactly_the_designed_transitions_are_in_the_table(now: ChildState, then: ChildState) -> None:
    assert (then in TRANSITIONS[now]) is ((now, then) in ALLOWED)


def test_every_state_can_be_reached_and_only_stopped_is_final() -> None:
    assert set(TRANSITIONS) == set(ChildState)
    assert {then for _, then in ALLOWED} == set(ChildState)
    assert [state for state in ChildState if not TRANSITIONS[state]] == [STOPPED]


def test_a_state_is_written_as_its_plain_word() -> None:
    assert [f"{state}" for state in ChildState] == ["sleeping", "initializing", "running", "failed", "stopped"]
