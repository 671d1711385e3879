"""Back-pressure on who goes on after being refused."""

from __future__ import annotations

import asyncio

from support.virtual_time import elapsed

from fastmcp_aggregator.policies import refused_callers
from fastmcp_aggregator.policies.refused_callers import RefusedCallers


async def flood(callers: RefusedCallers, holder: str, times: int) -> None:
    """So many requests one after the other, each of them refused."""
    for _ in range(times):
        await callers.turn(holder)
        callers.refused(holder)


def test_a_few_refusals_slow_nobody_down() -> None:
    async def work() -> None:
        callers = RefusedCallers()
        for _ in range(10):
            await flood(callers, "ann", 15)
            began = asyncio.get_running_loop().time()
            await callers.turn("ann")
            assert asyncio.get_running_loop().time() == began
            await asyncio.sleep(1)

    assert elapsed(work()) == 10


def test_who_goes_on_takes_turns_on_however_many_connections() -> None:
    async def work() -> None:
        callers = RefusedCallers()
        await asyncio.gather(*(flood(callers, "ann", 100) for _ in range(10)))

    assert 8 < elapsed(work()) < 10.1


def test_others_go_on_at_once() -> None:
    async def work() -> None:
        callers = RefusedCallers()
        flooding = [asyncio.create_task(flood(callers, "ann", 100)) for _ in range(10)]
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await flood(callers, "bob", 5)
        assert asyncio.get_running_loop().time() == began
        await asyncio.gather(*flooding)

    elapsed(work())


def test_it_is_over_a_second_after_the_last_refusal() -> None:
    async def work() -> None:
        callers = RefusedCallers()
        await asyncio.gather(*(flood(callers, "ann", 50) for _ in range(2)))
        await asyncio.sleep(1.1)
        began = asyncio.get_running_loop().time()
        await callers.turn("ann")
        assert asyncio.get_running_loop().time() == began

    elapsed(work())


def test_few_callers_are_known_for_long() -> None:
    async def work() -> None:
        callers = RefusedCallers()
        await flood(callers, "ann", 50)
        for number in range(5 * refused_callers._MOST):
            callers.refused(number)
        assert len(callers.lately) <= refused_callers._MOST
        assert "ann" in callers.lately

    elapsed(work())


class Wire:
    """A connection that can be closed."""

    turn: asyncio.Future[None]

    def give_way(self, turn: asyncio.Future[None]) -> None:
        self.turn = turn


def test_who_leaves_waits_no_longer_and_keeps_nobody_waiting() -> None:
    async def work() -> None:
        callers = RefusedCallers()
        await flood(callers, "ann", 40)
        wires = [Wire() for _ in range(1000)]
        waiting = [asyncio.create_task(callers.refuse("ann", wire)) for wire in wires]
        await asyncio.sleep(0)
        for wire in wires[:-1]:
            wire.turn.set_result(None)
        await asyncio.wait(waiting[:-1])
        assert len(callers.lately["ann"]._waiting) == 1
        began = asyncio.get_running_loop().time()
        await waiting[-1]
        assert asyncio.get_running_loop().time() - began < 0.02

    assert elapsed(work()) < 1


def test_who_is_cancelled_waits_no_longer() -> None:
    async def work() -> None:
        callers = RefusedCallers()
        await flood(callers, "ann", 40)
        waiting = [asyncio.create_task(callers.refuse("ann")) for _ in range(100)]
        await asyncio.sleep(0)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        assert not callers.lately["ann"]._waiting
        await flood(callers, "ann", 10)

    assert elapsed(work()) < 1
