"""How many requests begin in one turn of the event loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from fastmcp_aggregator.concurrency.arrivals import Line
from fastmcp_aggregator.front.http.boundary import Pace
from fastmcp_aggregator.front.http.gate import CONNECTION


async def nothing(*_: Any) -> None: ...


def request(method: str, path: str) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path}


async def test_looks_take_turns_of_their_own_one_by_one() -> None:
    begun = list[str]()

    async def app(scope: Any, *_: Any) -> None:
        begun.append(scope["path"])

    pace = Pace(app)
    tasks = [asyncio.create_task(pace(request("GET", "/health"), nothing, nothing)) for _ in range(50)]  # type: ignore[arg-type]
    tasks.append(asyncio.create_task(pace(request("POST", "/mcp"), nothing, nothing)))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert begun == ["/health", "/mcp"]
    await asyncio.gather(*tasks)
    assert begun.count("/health") == 50


@pytest.mark.parametrize(("cost", "most"), [(0.0, 2 * Pace.most), (0.001, Pace.most), (1.0, Pace.most)])
async def test_few_requests_begin_in_one_turn_and_all_in_order(
    cost: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace, begun, now = Pace(nothing), list[int](), 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def request(number: int) -> None:
        nonlocal now
        await pace._turns.take()
        begun.append(number)
        now += cost

    tasks = [asyncio.create_task(request(number)) for number in range(50)]
    in_turn: list[int] = []
    while not all(task.done() for task in tasks):
        before = len(begun)
        await asyncio.sleep(0)
        in_turn.append(len(begun) - before)
    assert in_turn[0] == max(in_turn) == most
    assert begun == [*range(50)]


async def test_after_turns_that_were_short_the_next_that_is_long_is_the_last_of_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pace, begun, now = Pace(nothing), 0, 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def request(number: int) -> None:
        nonlocal now, begun
        await pace._turns.take()
        begun += 1
        now += number >= 6 * Pace.most  # the flood begins

    tasks = [asyncio.create_task(request(number)) for number in range(12 * Pace.most)]
    in_turn: list[int] = []
    while begun < len(tasks):
        before = begun
        await asyncio.sleep(0)
        in_turn.append(begun - before)
    at_once = [count for count in in_turn if count]
    assert at_once[:4] == [2 * Pace.most] * 4
    assert set(at_once[5:]) == {Pace.most}


async def test_a_request_that_is_cancelled_takes_nobody_s_turn() -> None:
    pace = Pace(nothing)
    tasks = [asyncio.create_task(pace._turns.take()) for _ in range(3 * Pace.most)]
    await asyncio.sleep(0)
    for task in tasks[Pace.most : 2 * Pace.most]:
        task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks)
    assert not any(task.cancelled() for task in tasks[2 * Pace.most :])


@dataclass
class Connection:
    line: Line


@pytest.mark.parametrize("other", [Connection(("b", True)), Connection(("a", False))])
async def test_requests_begin_by_their_addresses_in_turn_and_there_new_connections_and_others(
    other: Connection,
) -> None:
    begun, gate = list[str](), asyncio.Event()

    async def app(scope: Any, *_: Any) -> None:
        begun.append(scope["path"])
        await gate.wait()

    pace = Pace(app)
    comes = [("flood", Connection(("a", True)))] * 100 + [("other", other)] * 2
    scopes = [{**request("POST", path), CONNECTION: connection} for path, connection in comes]
    tasks = [asyncio.create_task(pace(scope, nothing, nothing)) for scope in scopes]  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
    assert begun.count("other") == 2
    assert begun.count("flood") < 30
    gate.set()
    await asyncio.gather(*tasks)
    assert begun.count("flood") == 100


async def test_it_begins_anew_after_a_pause() -> None:
    pace = Pace(nothing)
    for _ in range(3):
        await asyncio.gather(*(pace._turns.take() for _ in range(2 * Pace.most)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert pace._turns.begun == 0


@pytest.mark.parametrize("others", [("POST", "/mcp"), ("GET", "/"), ("HEAD", "/"), ("OPTIONS", "/mcp")])
async def test_a_request_that_looks_waits_for_no_turn_of_others(others: tuple[str, str]) -> None:
    seen, gate = list[str](), asyncio.Event()

    async def app(scope: Any, *_: Any) -> None:
        seen.append(scope["path"])
        await gate.wait()

    pace = Pace(app)
    tasks = [
        asyncio.create_task(pace(request(*each), nothing, nothing)) for each in [*[others] * 50, ("GET", "/health")]
    ]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert "/health" in seen
    assert seen.count(others[1]) <= 3 * Pace.most
    gate.set()
    await asyncio.gather(*tasks)
    assert seen.count(others[1]) == 50
    assert (pace._served, pace._turns.begun) == (0, 0)


async def test_a_few_requests_begin_at_once_and_cost_the_loop_nothing() -> None:
    pace = Pace(nothing)
    for _ in range(3 * Pace.most):
        await pace({"type": "http", "method": "POST"}, nothing, nothing)  # type: ignore[arg-type]
    assert (pace._served, pace._turns.begun) == (0, 0)
