"""How long to wait before a failed child is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.children.backoff import FIRST_CEILING, LAST_CEILING, delay_before_attempt

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
    assert 0 <= delay_before_attempt(failures, fraction) <= LAST_CEILING


@given(FAILURES, FAILURES, FRACTIONS)
def test_more_failures_never_mean_a_shorter_wait(one: int, other: int, fraction: float) -> None:
    fewer, more = sorted((one, other))
    assert delay_before_attempt(fewer, fraction) <= delay_before_attempt(more, fraction)


def test_children_that_failed_together_are_spread_over_the_whole_time() -> None:
    delays = [delay_before_attempt(1, fraction) for fraction in (0, 0.25, 0.5, 0.75)]
    assert delays == [fraction * FIRST_CEILING for fraction in (0, 0.25, 0.5, 0.75)]
