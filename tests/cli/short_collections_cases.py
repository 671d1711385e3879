"""Garbage collections while the program serves, in a process with little else to look at: each case and what failed."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import traceback
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from unittest.mock import patch

from support.virtual_time import VirtualTimeLoop

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


@asynccontextmanager
async def serving() -> AsyncIterator[Clock]:
    """What was there before is set aside; only what is made here is looked at."""
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


async def what_survives_is_set_aside(clock: Clock) -> None:
    before = gc.get_freeze_count()
    kept = [[number] for number in range(1000)]
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects()) < 1000


async def new_circles_are_collected(clock: Clock) -> None:
    found = weakref.ref(Circle())
    gc.collect()
    assert found() is None


async def old_circles_are_collected_once_it_is_worth_it(clock: Clock) -> None:
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


async def where_there_is_hardly_more_nothing_is_looked_at_again(clock: Clock) -> None:
    clock.late += 601
    gc.collect()
    assert gc.get_freeze_count() > 0


async def old_circles_are_collected_while_there_is_nothing_to_do(clock: Clock) -> None:
    found = await leave_circles(10_000)
    assert found() is not None
    await asyncio.sleep(2)
    assert found() is None


async def nothing_is_looked_at_while_there_is_much_to_do(clock: Clock) -> None:
    found = await leave_circles(10_000)
    for _ in range(100):
        clock.computed += 0.01
        await asyncio.sleep(0.1)
    assert found() is not None


async def a_few_objects_are_not_worth_a_pause(clock: Clock) -> None:
    found = await leave_circles(10)
    await asyncio.sleep(100)
    assert found() is not None


async def what_is_set_aside_is_counted_once_it_may_have_grown(clock: Clock) -> None:
    """To count walks through all of it."""
    count, counted = gc.get_freeze_count, list[float]()
    with patch.object(gc, "get_freeze_count", lambda: (counted.append(clock()), count())[1]):
        await asyncio.sleep(10)
        await leave_circles(10)
        counted.clear()
        await asyncio.sleep(100)
    assert len(counted) == 1


async def pauses_take_a_hundredth_of_the_time(clock: Clock) -> None:
    collect, pauses = gc.collect, list[float]()

    def slow_collect() -> None:
        pauses.append(clock())
        collect()
        clock.late += 0.1

    with patch.object(gc, "collect", slow_collect):
        for _ in range(30):
            circles = [Circle() for _ in range(10_000)]
            collect()
            del circles
            await asyncio.sleep(1)
    assert len(pauses) == 3
    assert min(later - earlier for earlier, later in itertools.pairwise(pauses)) >= 10


CASES = (
    what_survives_is_set_aside,
    new_circles_are_collected,
    old_circles_are_collected_once_it_is_worth_it,
    where_there_is_hardly_more_nothing_is_looked_at_again,
    old_circles_are_collected_while_there_is_nothing_to_do,
    nothing_is_looked_at_while_there_is_much_to_do,
    a_few_objects_are_not_worth_a_pause,
    what_is_set_aside_is_counted_once_it_may_have_grown,
    pauses_take_a_hundredth_of_the_time,
)


async def failure_of(case: Callable[[Clock], Awaitable[None]]) -> str:
    """How it fails; nothing if it does not."""
    async with serving() as clock:
        try:
            await case(clock)
        except Exception:
            return traceback.format_exc()
    return ""


def main() -> None:
    failures = {}
    for case in CASES:
        loop = VirtualTimeLoop()
        failures[case.__name__] = loop.run_until_complete(failure_of(case))
        loop.close()
    print(json.dumps(failures))


if __name__ == "__main__":
    main()
