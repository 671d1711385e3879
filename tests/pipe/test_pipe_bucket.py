"""A token bucket: how many of something may pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.pipe.bucket import TokenBucket

WAITS = st.lists(st.floats(min_value=0, max_value=10), max_size=200)


def test_a_burst_passes_at_once_and_what_is_more_is_refused_and_counted() -> None:
    bucket = TokenBucket(burst=3, rate=1)
    assert [bucket.take(100.0) for _ in range(5)] == [True, True, True, False, False]
    assert bucket.rejected == 2


def test_after_the_burst_so_many_a_second_pass() -> None:
    bucket = TokenBucket(burst=1, rate=2)
    assert [bucket.take(now) for now in (10.0, 10.25, 10.5, 10.75, 11.0)] == [True, False, True, False, True]


def test_a_long_silence_earns_no_more_than_one_burst() -> None:
    bucket = TokenBucket(burst=2, rate=1)
    bucket.take(0.0)
    assert [bucket.take(10**6) for _ in range(3)] == [True, True, False]


def test_the_time_before_the_first_does_not_matter() -> None:
    bucket = TokenBucket(burst=2, rate=1)
    assert [bucket.take(10**9) for _ in range(3)] == [True, True, False]


@given(st.integers(min_value=1, max_value=20), st.floats(min_value=0.1, max_value=20), WAITS)
def test_never_more_than_the_burst_and_the_rate_allow(burst: int, rate: float, waits: list[float]) -> None:
    bucket, now, passed = TokenBucket(burst=burst, rate=rate), 0.0, 0
    for wait in waits:
        now += wait
        passed += bucket.take(now)
    assert passed <= burst + rate * now + 1e-6
    assert passed + bucket.rejected == len(waits)


@given(st.integers(min_value=1, max_value=20), st.floats(min_value=0.1, max_value=20), st.integers(1, 100))
def test_whoever_keeps_to_the_rate_is_never_refused(burst: int, rate: float, count: int) -> None:
    bucket = TokenBucket(burst=burst, rate=rate)
    assert all(bucket.take(number * (1.0001 / rate)) for number in range(count))
