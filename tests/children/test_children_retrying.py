"""When a failed child is tried again, and when a call may trigger that, by a clock that the tests turn."""

from __future__ import annotations

import asyncio

from support.doubles import Clock

from fastmcp_aggregator.children.retry import Retry
from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS as TIMES
from fastmcp_aggregator.children.timings import Timings


def failed(retrying: Retry, times: int = 1, *, ran_for: float = 0.0, pause: float = 0.0) -> None:
    for _ in range(times):
        retrying.failed(ran_for=ran_for, pause=pause, is_crash=True)


async def is_awaited(retrying: Retry) -> bool:
    """Whether the next attempt is still to be waited for."""
    waiting = asyncio.ensure_future(retrying.wait(asyncio.Event()))
    for _ in range(10):
        await asyncio.sleep(0)
    is_awaited = not waiting.done()
    waiting.cancel()
    await asyncio.wait({waiting})
    return is_awaited


async def test_retry_is_immediate_after_serving() -> None:
    clock = Clock()
    retrying = Retry(Timings(clock=clock))
    for _ in range(3 * TIMES.crash_loop):
        clock.now += TIMES.served_after
        failed(retrying, ran_for=TIMES.served_after)
        assert retrying.remaining == 0


async def test_retry_is_triggered_by_a_call() -> None:
    retrying = Retry(Timings(clock=Clock()))
    failed(retrying)
    assert retrying.trigger()
    assert not await is_awaited(retrying)


async def test_crash_loop_lets_a_call_trigger_a_start_every_ten_seconds() -> None:
    clock = Clock()
    retrying = Retry(Timings(clock=clock))
    failed(retrying, TIMES.crash_loop)
    for _ in range(3):
        assert retrying.remaining == TIMES.crash_loop_delay
        clock.now += TIMES.crash_loop_pause - 1
        assert retrying.before_call == 1
        assert not retrying.trigger()
        assert await is_awaited(retrying)
        failed(retrying)
        clock.now += TIMES.crash_loop_pause
        assert retrying.trigger()
        assert not await is_awaited(retrying)
        failed(retrying)


async def test_retry_after_of_a_server_is_kept_for_calls_too() -> None:
    clock = Clock()
    retrying = Retry(Timings(clock=clock))
    failed(retrying, pause=30)
    assert retrying.before_call == retrying.remaining == 30
    clock.now += 29
    assert not retrying.trigger()
    clock.now += 1
    assert retrying.trigger()


async def test_retry_has_no_time_while_nothing_waits() -> None:
    assert Retry(Timings(clock=Clock())).before_call is None
