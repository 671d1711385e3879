"""How a server is asked for a task in the stead of a client that takes none."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.shared.exceptions import MCPError
from support.virtual_time import VirtualTimePolicy, now

from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.relay.instances.open_tasks import TASK_LIFETIME, OpenTasks
from fastmcp_aggregator.relay.task_polling import LONGEST_INTERVAL, SHORTEST_INTERVAL, Polling, interval_of


@pytest.fixture
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


class Server:
    """Answers with these tasks, one after the other, the last one again and again; an exception is raised."""

    def __init__(self, *tasks: Any) -> None:
        self.tasks = list(tasks)
        self.asked_at: list[float] = []

    async def __call__(self, method: str, **more: Any) -> dict[str, Any]:
        self.asked_at.append(now())
        task = self.tasks.pop(0) if len(self.tasks) > 1 else self.tasks[0]
        if isinstance(task, Exception):
            raise task
        return dict(task)


def caller(told: list[Any]) -> Any:
    return SimpleNamespace(notify=lambda method, params: told.append(params), is_modern=False)


WORKING = {"status": "working", "pollIntervalMs": 1000, "ttlMs": None}
DONE = {"status": "completed", "result": {"content": []}}
LOST = ChildServerError("a", "runtime", "it is away")


async def test_pauses_double_up_to_what_the_server_names() -> None:
    server, told = Server(*[WORKING] * 6, DONE), []
    assert await Polling(server, caller(told)).result(WORKING) == DONE["result"]
    pauses = [round(b - a, 3) for a, b in zip(server.asked_at, server.asked_at[1:], strict=False)]
    assert pauses == [0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert [each["progress"] for each in told] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("named", "seconds"),
    [
        (0, 5),
        (-1, 5),
        (None, 5),
        ("x", 5),
        (1, SHORTEST_INTERVAL),
        (10**9, LONGEST_INTERVAL),
        (2000, 2),
        pytest.param(10**400, LONGEST_INTERVAL, id="huge"),
        (math.nan, 5),
    ],
)
def test_the_interval_is_within_bounds(named: Any, seconds: float) -> None:
    assert interval_of({"pollIntervalMs": named}) == seconds


async def test_a_server_that_is_away_for_a_moment_is_asked_again() -> None:
    server = Server(LOST, LOST, LOST, DONE)
    assert await Polling(server, caller([])).result(WORKING) == DONE["result"]


async def test_one_that_stays_away_is_given_up() -> None:
    began = now()
    polling = Polling(Server(LOST), caller([]))
    with pytest.raises(ChildServerError):
        await polling.result(WORKING)
    assert 60 < now() - began < 65
    assert not polling.is_over


async def test_a_task_that_outlives_its_time_is_given_up() -> None:
    task = {**WORKING, "ttlMs": 10_000}
    with pytest.raises(MCPError, match="not done within 10 s"):
        await Polling(Server(task), caller([])).result(task)
    assert now() < 60


@pytest.mark.parametrize(
    ("task", "code", "message"),
    [
        ({"status": "failed", "error": {"code": -32077, "message": "no"}}, -32077, "no"),
        ({"status": "failed", "error": "odd"}, -32603, "the task of the server is failed"),
        ({"status": "cancelled", "statusMessage": "too late"}, -32603, "is cancelled: too late"),
        ({"status": "completed", "result": None}, -32603, "is completed"),
    ],
)
async def test_what_is_no_result_is_an_error(task: Any, code: int, message: str) -> None:
    polling = Polling(Server(task), caller([]))
    with pytest.raises(MCPError, match=message) as caught:
        await polling.result(WORKING)
    assert caught.value.error.code == code
    assert polling.is_over


async def test_a_task_that_asks_without_end_is_given_up() -> None:
    asked: list[str] = []

    async def ask(method: str, *about: Any) -> dict[str, Any]:
        asked.append(method)
        return {"roots": []}

    class Curious(Server):
        async def __call__(self, method: str, **more: Any) -> dict[str, Any]:
            question = {f"{len(asked)}-{number}": {"method": "roots/list"} for number in range(20)}
            return {"status": "input_required", "inputRequests": question, "ttlMs": None}

    curious: Any = SimpleNamespace(notify=lambda method, params: None, is_modern=False, ask=ask)
    with pytest.raises(MCPError, match="the task asked more than 200 things"):
        await Polling(Curious(), curious).result(WORKING)
    assert len(asked) == 200


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [(10**400, TASK_LIFETIME), (-(10**400), 0), (math.nan, TASK_LIFETIME)],
    ids=["huge", "less", "none"],
)
async def test_a_task_is_kept_for_no_longer_than_a_day_whatever_number_its_server_says(
    ttl: Any, seconds: float
) -> None:
    tasks, instance = OpenTasks(), cast("Child", object())
    tasks.hold(instance, "a", ttl)
    assert tasks.held_for(instance) == seconds
    late = {**WORKING, "ttlMs": ttl}
    with pytest.raises(MCPError, match="the task was not done within"):
        await Polling(Server(late), caller([])).result(late)
    assert now() <= seconds + 2 * LONGEST_INTERVAL
