"""How long to wait before a failed child is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.children.retry import Backoff, delay_before_attempt
from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS as TIMES

FAILURES = st.integers(min_value=1, max_value=10**9)
FRACTIONS = st.floats(min_value=0, max_value=1, exclude_max=True)
ALMOST_ONE = 1 - 2**-53


@pytest.mark.parametrize(
    ("failures", "ceiling"),
    [(1, 0.5), (2, 1), (3, 2), (4, 4), (5, 8), (6, 16), (7, 32), (8, 60), (9, 60), (10**6, 60)],
)
def test_the_ceiling_doubles_with_each_failure_up_to_a_minute(failures: int, ceiling: float) -> None:
    assert delay_before_attempt(failures, ALMOST_ONE) == pytest.approx(ceiling)
    assert delay_before_attempt(failures, 0.5) == pytest.approx(ceiling / 2)


@given(FAILURES, FRACTIONS)
def test_a_delay_is_never_negative_and_never_over_a_minute(failures: int, fraction: float) -> None:
    assert 0 <= delay_before_attempt(failures, fraction) <= TIMES.last_ceiling


@given(FAILURES, FAILURES, FRACTIONS)
def test_more_failures_never_mean_a_shorter_wait(one: int, other: int, fraction: float) -> None:
    fewer, more = sorted((one, other))
    assert delay_before_attempt(fewer, fraction) <= delay_before_attempt(more, fraction)


def test_children_that_failed_together_are_spread_over_the_whole_time() -> None:
    delays = [delay_before_attempt(1, fraction) for fraction in (0, 0.25, 0.5, 0.75)]
    assert delays == [fraction * TIMES.first_ceiling for fraction in (0, 0.25, 0.5, 0.75)]


def delays(backoff: Backoff, *times: float, ran_for: float = 0.0) -> list[float]:
    """The delays, with the most unlucky jitter, after failures at these times."""
    return [backoff.failed(time, ran_for=ran_for, random_fraction=ALMOST_ONE) for time in times]


def test_each_failure_in_a_row_doubles_the_delay() -> None:
    assert delays(Backoff(), 0, 100, 200, 300) == pytest.approx([0.5, 1, 2, 4])


def test_a_child_that_has_served_is_back_at_once_and_what_was_before_is_forgotten() -> None:
    backoff = Backoff()
    assert delays(backoff, 0, 100, 200)[-1] == pytest.approx(2)
    assert delays(backoff, 300, ran_for=TIMES.served_after) == [0]
    assert delays(backoff, 400, ran_for=TIMES.served_after - 0.01) == pytest.approx([0.5])


@given(st.lists(st.floats(min_value=TIMES.served_after, max_value=10**6), min_size=1))
def test_a_child_that_serves_each_time_is_back_at_once_however_often_it_fails(lives: list[float]) -> None:
    backoff, now = Backoff(), 0.0
    for ran_for in lives:
        now += ran_for
        assert delays(backoff, now, ran_for=ran_for) == [0]
        assert not backoff.is_crash_loop


def test_a_server_that_says_when_it_wants_to_be_asked_again_is_left_alone_although_it_has_served() -> None:
    assert Backoff().failed(0, ran_for=TIMES.served_after, random_fraction=0, at_least=30) == 30


def test_a_child_that_crashes_again_and_again_is_tried_every_five_minutes() -> None:
    backoff = Backoff()
    times = [number * TIMES.crash_window / (TIMES.crash_loop - 1) for number in range(TIMES.crash_loop)]
    assert delays(backoff, *times)[-1] == TIMES.crash_loop_delay == 300
    assert backoff.is_crash_loop
    assert delays(backoff, 1000, 2000) == [TIMES.crash_loop_delay] * 2


def test_failures_before_a_process_was_started_are_no_crash_loop() -> None:
    backoff = Backoff()
    later = [backoff.failed(now, ran_for=0, random_fraction=ALMOST_ONE, is_crash=False) for now in range(20)]
    assert max(later) <= TIMES.last_ceiling
    assert not backoff.is_crash_loop


def test_failures_far_apart_are_no_crash_loop() -> None:
    backoff = Backoff()
    times = [number * (TIMES.crash_window / (TIMES.crash_loop - 1) + 0.1) for number in range(20)]
    assert TIMES.crash_loop_delay not in delays(backoff, *times)
    assert not backoff.is_crash_loop


def test_serving_ends_a_crash_loop() -> None:
    backoff = Backoff()
    delays(backoff, *range(TIMES.crash_loop))
    assert backoff.pause_before_call == TIMES.crash_loop_pause == 10
    assert delays(backoff, 1000, ran_for=TIMES.served_after) == [0]
    assert not backoff.is_crash_loop
    assert backoff.pause_before_call == 0


@given(
    st.lists(st.tuples(st.sampled_from([0, 0.1, TIMES.served_after - 0.01]), st.sampled_from([0, 0.1, 1])), min_size=20)
)
def test_a_child_that_never_serves_is_started_at_most_ten_times_a_minute(lives: list[tuple[float, float]]) -> None:
    """Each life is how long it ran and how much of the wait passed before a call brought the next start forward."""
    backoff, now, starts = Backoff(), 0.0, [0.0]
    for ran_for, waited in lives:
        now += ran_for
        delay = backoff.failed(now, ran_for=ran_for, random_fraction=ALMOST_ONE)
        now += max(backoff.pause_before_call, delay * waited)
        starts.append(now)
    assert all(sum(start <= other < start + 60 for other in starts) <= 10 for start in starts)


def test_a_delay_can_be_given_a_least() -> None:
    """As when a server says when it wants to be asked again."""
    assert Backoff().failed(0, ran_for=0, random_fraction=0, at_least=30) == 30
    crashing = Backoff()
    delays(crashing, *range(TIMES.crash_loop))
    assert crashing.failed(10, ran_for=0, random_fraction=0, at_least=30) == TIMES.crash_loop_delay
