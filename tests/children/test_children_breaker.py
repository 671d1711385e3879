"""The circuit breaker, as a table of what it lets through."""

import pytest

from fastmcp_aggregator.children.breaker import Breaker
from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS as TIMES


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(TIMES.failures_to_open):
        breaker.failed(at)
    return breaker


def test_it_opens_after_five_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker()
    for _ in range(TIMES.failures_to_open - 1):
        breaker.failed(0.0)
        assert breaker.wait(0.0) is None
    breaker.failed(0.0)
    assert breaker.wait(0.0) == TIMES.first_open


def test_a_success_in_between_starts_the_count_again() -> None:
    breaker = Breaker()
    for _ in range(3 * TIMES.failures_to_open):
        breaker.failed(0.0)
        breaker.succeeded()
    assert not breaker.is_open


def test_when_the_time_is_up_exactly_one_call_is_the_probe() -> None:
    breaker = opened()
    assert breaker.wait(TIMES.first_open - 1) == 1.0
    assert breaker.wait(TIMES.first_open) is None
    assert [breaker.wait(TIMES.first_open + later) for later in (0, 1, 100)] == [1.0, 1.0, 1.0]


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = opened()
    breaker.wait(TIMES.first_open)
    breaker.succeeded()
    assert breaker.wait(TIMES.first_open) is None
    assert not breaker.is_open


def test_each_probe_that_fails_opens_it_for_longer_up_to_a_limit() -> None:
    breaker, now = opened(), 0.0
    waits = []
    for _ in range(6):
        wait = breaker.wait(now)
        assert wait is not None
        waits.append(wait)
        now += wait
        assert breaker.wait(now) is None
        breaker.failed(now)
    assert waits == [30, 60, 120, 240, TIMES.longest_open, TIMES.longest_open]


def test_a_probe_whose_caller_gave_up_leaves_the_place_to_another() -> None:
    breaker = opened()
    assert breaker.wait(TIMES.first_open) is None
    breaker.abandoned()
    assert breaker.wait(TIMES.first_open) is None


@pytest.mark.parametrize("failures", [1, 4])
def test_failures_of_calls_that_were_already_going_do_not_prolong_it(failures: int) -> None:
    breaker = opened()
    for _ in range(failures):
        breaker.failed(10.0)
    assert breaker.wait(10.0) == TIMES.first_open - 10
