"""Garbage collections while the program serves: what survives one is not looked at by the next ones, for a while."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncIterator

import pytest
from support.virtual_time import VirtualTimePolicy

from fastmcp_aggregator.cli.running.short_collections import short_collections


class Circle:
    def __init__(self) -> None:
        self.own = self


class Clock:
    """Of the loop; it goes on by itself, too."""

    late = 0.0
    computed = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.late


@pytest.fixture
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


@pytest.fixture
async def clock() -> AsyncIterator[Clock]:
    """What the tests before have left is set aside; only what is made here is looked at."""
    clock = Clock()
    gc.freeze()
    gc.disable()
    try:
        async with short_collections(clock, lambda: clock.computed):
            yield clock
    finally:
        gc.freeze()
        gc.enable()


async def leave_circles(count: int) -> weakref.ref[Circle]:
    """Circles that survived a collection, and are garbage now; one of them."""
    circles = [Circle() for _ in range(count)]
    gc.collect()
    return weakref.ref(circles[0])


async def test_what_survives_is_set_aside(clock: Clock) -> None:
    before = gc.get_freeze_count()
    kept = [[number] for number in range(1000)]
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects()) < 1000


async def test_new_circles_are_collected(clock: Clock) -> None:
    found = weakref.ref(Circle())
    gc.collect()
    assert found() is None


async def test_old_circles_are_collected_once_it_is_worth_it(clock: Clock) -> None:
    circle = Circle()
    found = weakref.ref(circle)
    gc.collect()
    del circle
    kept = [[] for _ in range(gc.get_freeze_count() // 2)]
    gc.collect()
    gc.collect()
    assert found() is not None
    clock.late += 601
    gc.collect()
    gc.collect()
    assert found() is None
    assert gc.get_freeze_count() > len(kept)


async def test_where_there_is_hardly_more_nothing_is_looked_at_again(clock: Clock) -> None:
    clock.late += 601
    gc.collect()
    assert gc.get_freeze_count() > 0


async def test_old_circles_are_collected_while_there_is_nothing_to_do(clock: Clock) -> None:
    found = await leave_circles(10_000)
    assert found() is not None
    await asyncio.sleep(2)
    assert found() is None


async def test_nothing_is_looked_at_while_there_is_much_to_do(clock: Clock) -> None:
    found = await leave_circles(10_000)
    for _ in range(100):
        clock.computed += 0.01
        await asyncio.sleep(0.1)
    assert found() is not None


async def test_a_few_objects_are_not_worth_a_pause(clock: Clock) -> None:
    found = await leave_circles(10)
    await asyncio.sleep(100)
    assert found() is not None


async def test_what_is_set_aside_is_counted_once_it_may_have_grown(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To count walks through all of it."""
    count, counted = gc.get_freeze_count, list[float]()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: (counted.append(clock()), count())[1])
    await asyncio.sleep(10)
    await leave_circles(10)
    counted.clear()
    await asyncio.sleep(100)
    assert len(counted) == 1


async def test_pauses_take_a_hundredth_of_the_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    collect, pauses = gc.collect, list[float]()

    def slow_collect() -> None:
        pauses.append(clock())
        collect()
        clock.late += 0.1

    monkeypatch.setattr(gc, "collect", slow_collect)
    for _ in range(30):
        circles = [Circle() for _ in range(10_000)]
        collect()
        del circles
        await asyncio.sleep(1)
    assert len(pauses) == 3
    assert min(later - earlier for earlier, later in itertools.pairwise(pauses)) >= 10
