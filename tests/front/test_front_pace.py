"""How many requests begin in one turn of the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from fastmcp_aggregator.front.http.boundary import Pace


async def nothing(*_: Any) -> None: ...


async def test_few_requests_begin_in_one_turn_and_all_in_order() -> None:
    pace, begun = Pace(nothing), list[int]()

    async def request(number: int) -> None:
        await pace._turn()
        begun.append(number)

    tasks = [asyncio.create_task(request(number)) for number in range(50)]
    most = 0
    while not all(task.done() for task in tasks):
        before = len(begun)
        await asyncio.sleep(0)
        most = max(most, len(begun) - before)
    assert 0 < most <= Pace.most
    assert begun == [*range(50)]


async def test_a_request_that_is_cancelled_takes_nobody_s_turn() -> None:
    pace = Pace(nothing)
    tasks = [asyncio.create_task(pace._turn()) for _ in range(3 * Pace.most)]
    await asyncio.sleep(0)
    for task in tasks[Pace.most : 2 * Pace.most]:
        task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks)
    assert not any(task.cancelled() for task in tasks[2 * Pace.most :])


async def test_it_begins_anew_after_a_pause() -> None:
    pace = Pace(nothing)
    for _ in range(3):
        await asyncio.gather(*(pace._turn() for _ in range(2 * Pace.most)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert pace._begun == 0


async def test_a_request_that_looks_waits_for_no_turn() -> None:
    seen, gate = list[str](), asyncio.Event()

    async def app(scope: Any, *_: Any) -> None:
        seen.append(scope["method"])
        await gate.wait()

    pace = Pace(app)
    methods = ["POST"] * (5 * Pace.most) + ["GET"]
    tasks = [asyncio.create_task(pace({"type": "http", "method": each}, nothing, nothing)) for each in methods]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert "GET" in seen
    assert seen.count("POST") <= 2 * Pace.most
    gate.set()
    await asyncio.gather(*tasks)
    assert seen.count("POST") == 5 * Pace.most
    assert (pace._served, pace._begun) == (0, 0)


async def test_a_few_requests_begin_at_once_and_cost_the_loop_nothing() -> None:
    pace = Pace(nothing)
    for _ in range(3 * Pace.most):
        await pace({"type": "http", "method": "POST"}, nothing, nothing)  # type: ignore[arg-type]
    assert (pace._served, pace._begun) == (0, 0)
