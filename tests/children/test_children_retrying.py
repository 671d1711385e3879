"""Who may bring the next attempt of a failed child forward, and when, by a clock that the tests turn."""

from __future__ import annotations

import asyncio

from fastmcp_aggregator.children.backoff import CRASH_LOOP, CRASH_LOOP_DELAY, CRASH_LOOP_PAUSE, SERVED_AFTER
from fastmcp_aggregator.children.retry import Retry


class Clock:
    """Monotonic seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


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


async def test_a_child_that_has_served_is_back_at_once_each_time() -> None:
    clock = Clock()
    retrying = Retry(clock)
    for _ in range(3 * CRASH_LOOP):
        clock.now += SERVED_AFTER
        failed(retrying, ran_for=SERVED_AFTER)
        assert retrying.remaining == 0


async def test_a_call_brings_the_next_attempt_forward() -> None:
    retrying = Retry(Clock())
    failed(retrying)
    assert retrying.bring_forward()
    assert not await is_awaited(retrying)


async def test_in_a_crash_loop_a_call_has_it_tried_every_ten_seconds() -> None:
    clock = Clock()
    retrying = Retry(clock)
    failed(retrying, CRASH_LOOP)
    for _ in range(3):
        assert retrying.remaining == CRASH_LOOP_DELAY
        clock.now += CRASH_LOOP_PAUSE - 1
        assert retrying.before_call == 1
        assert not retrying.bring_forward()
        assert await is_awaited(retrying)
        failed(retrying)
        clock.now += CRASH_LOOP_PAUSE
        assert retrying.bring_forward()
        assert not await is_awaited(retrying)
        failed(retrying)


async def test_no_call_brings_forward_what_a_server_has_asked_to_wait_for() -> None:
    clock = Clock()
    retrying = Retry(clock)
    failed(retrying, pause=30)
    assert retrying.before_call == retrying.remaining == 30
    clock.now += 29
    assert not retrying.bring_forward()
    clock.now += 1
    assert retrying.bring_forward()


async def test_what_nobody_waits_for_has_no_time() -> None:
    assert Retry(Clock()).before_call is None
