"""Calls' deadlines in memory, by a clock that jumps: while they wait for a slot, for their client, for progress."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness import RawClient, config, connected, lean, talking, until
from support.memory import Scripts, scripted
from support.virtual_time import VirtualTimePolicy, now
from support.wire import EVERYTHING, Message

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.relay.account_calls import _authorize

TIMES = Timings(clock=now, jitter=lambda: 1.0, health_interval=3600.0)
"""Nobody but callers asks the children."""
CLIENT_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
ROOTS = {"method": "roots/list"}
HOLD = {"name": "a:hold", "arguments": {}}
CUT_OFF = "it did not answer several times in a row, next try in 30 s"


@pytest.fixture
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


@asynccontextmanager
async def serving(
    entry: Message, *, modern: bool = False, **settings: Any
) -> AsyncIterator[tuple[Aggregator, RawClient, Scripts]]:
    """An app with a child `a` of this entry and a lean one, `b`, and a client that can be asked."""
    app = build_aggregator(config(a=entry, b=lean()), **settings)
    scripts = scripted(app, TIMES)
    async with app, connected(app, modern=modern, capabilities=EVERYTHING) as client:
        await until(lambda: all(child.is_serving for child in app.children.values()))
        yield app, client, scripts


def numbers(app: Aggregator) -> tuple[int, int]:
    """How many calls to `a` are in flight, and how many wait."""
    status = app.health()["a"]
    return status.in_flight, status.waiting


def too_late(seconds: float) -> str:
    return f"server 'a': it did not answer tools/call within {seconds:g} s"


async def one_after_the_other(client: RawClient, calls: int) -> list[asyncio.Future[Message]]:
    """Begin calls that are held, so that their deadlines pass one after the other."""
    begun = []
    for _ in range(calls):
        begun.append(client.begin("tools/call", HOLD)[1])
        await asyncio.sleep(0.05)
    return begun


# While nothing comes.


async def test_a_child_that_does_not_answer_is_not_asked_for_a_while_and_others_are() -> None:
    async with serving(lean(), servers={"a": {"call_timeout": 1.0}}) as (_, client, _):
        for _ in range(5):
            assert (await client.error("tools/call", HOLD))["message"] == too_late(1)
        error = await client.error("tools/call", {"name": "a:echo"})
        assert CUT_OFF in error["message"]
        assert error["data"]["retryIn"] == pytest.approx(TIMES.first_open, abs=0.1)
        assert (await client.call("b:echo"))["tool"] == "echo"
        await asyncio.sleep(TIMES.first_open)
        for _ in range(2):
            assert (await client.call("a:echo"))["tool"] == "echo"


async def test_progress_keeps_a_call_alive_beyond_its_deadline() -> None:
    steps = [step for number in range(6) for step in ({"progress": [number]}, {"wait": str(number)})]
    async with serving(talking(), servers={"a": {"call_timeout": 1.0}}) as (_, client, _):
        params = {"name": "a:play", "arguments": {"script": steps}, "_meta": {"progressToken": "t"}}
        _, answer = client.begin("tools/call", params)
        began = now()
        for number in range(6):
            await client.heard("notifications/progress")
            await asyncio.sleep(0.9)
            await client.call("a:open", gate=str(number))
        assert "result" in await answer
        assert now() - began > 5


# While it waits for its slot.


async def test_a_call_that_is_not_answered_in_what_its_wait_has_left_of_its_deadline_is_told_of_both() -> None:
    """The first has the slot for half of the second's deadline, and for the other half the second is held."""
    async with serving(lean(), max_concurrent_calls=1, call_timeout=1.0) as (app, client, _):
        first, _ = client.begin("tools/call", HOLD)
        _, second = client.begin("tools/call", HOLD)
        await until(lambda: numbers(app) == (1, 1))
        await asyncio.sleep(0.5)
        client.notify("notifications/cancelled", {"requestId": first})
        message = (await second)["error"]["message"]
        said, _, rest = message.removesuffix(" s of them before it was sent").rpartition(", ")
        assert said == too_late(1)
        assert float(rest) == pytest.approx(0.5, abs=0.1)


async def test_what_a_call_waits_for_tokens_is_part_of_its_deadline() -> None:
    async with serving(lean(), call_timeout=1.0) as (app, _, _):
        child, began = app.children["a"], now()
        call: Any = SimpleNamespace(child=child, method="tools/call", spent=0.0)

        async def slow() -> None:
            await asyncio.sleep(0.4)

        for _ in range(2):
            await _authorize(SimpleNamespace(authorization=slow), call)  # type: ignore[arg-type]
        with pytest.raises(ChildServerError, match=r"within 1 s, 0\.8 s of them before"):
            await child.calls.request("tools/call", {"name": "hold", "arguments": {}}, spent=call.spent)
        assert now() - began == pytest.approx(1.0, abs=0.05)
        with pytest.raises(ChildServerError, match="its authorization server has not answered within 1 s"):
            await _authorize(SimpleNamespace(authorization=slow), call)  # type: ignore[arg-type]
        assert now() - began == pytest.approx(1.2, abs=0.05)


async def test_calls_that_had_less_time_than_they_may_take_do_not_count_against_a_child_that_lives() -> None:
    async with serving(lean(), max_concurrent_calls=1, call_timeout=2.0) as (_, client, scripts):
        _, alive = client.begin("tools/call", HOLD)
        late = await one_after_the_other(client, 8)
        await asyncio.sleep(0.6)
        child: Any = scripts["a"].life.child
        child.call_release(None, {}, {})
        assert "result" in await alive
        said = [(await answer)["error"]["message"] for answer in late]
        assert too_late(2) in said[0]
        assert (await client.call("a:echo"))["tool"] == "echo"


async def test_calls_that_wait_for_a_silent_child_count_against_it_like_others() -> None:
    async with serving(lean(), max_concurrent_calls=1, call_timeout=1.0) as (_, client, _):
        await asyncio.wait(await one_after_the_other(client, 12))
        assert CUT_OFF in (await client.error("tools/call", {"name": "a:echo"}))["message"]


async def test_a_call_whose_slot_comes_when_the_child_has_not_answered_several_times_is_not_sent() -> None:
    note = [{"uri": "note://one", "name": "one"}]
    async with serving(lean(resources=note), max_concurrent_calls=1, call_timeout=1.0) as (app, client, _):
        await one_after_the_other(client, 12)
        assert CUT_OFF in (await client.error("resources/read", {"uri": "note://a/one"}))["message"]
        assert numbers(app) == (0, 0)


async def test_no_call_waits_behind_the_probe_of_a_child_that_has_not_answered_several_times() -> None:
    async with serving(lean(), max_concurrent_calls=1, call_timeout=1.0) as (app, client, _):
        for _ in range(5):
            await client.error("tools/call", HOLD)
        await asyncio.sleep(TIMES.first_open)
        client.begin("tools/call", HOLD)
        await until(lambda: numbers(app) == (1, 0))
        before = now()
        error = await client.error("tools/call", {"name": "a:echo"})
        assert "it did not answer several times in a row" in error["message"]
        assert now() - before < 0.1


async def test_a_probe_that_could_not_be_sent_leaves_its_place_to_the_next_call() -> None:
    async def send(*_: Any) -> Message:
        raise ValueError

    async with serving(lean(), call_timeout=1.0) as (app, client, _):
        for _ in range(5):
            await client.error("tools/call", HOLD)
        await asyncio.sleep(TIMES.first_open)
        with pytest.MonkeyPatch.context() as accident:
            accident.setattr(app.children["a"].session, "request", send)
            assert "Internal error" in (await client.error("tools/call", {"name": "a:echo"}))["message"]
        assert (await client.call("a:echo"))["tool"] == "echo"
        assert numbers(app) == (0, 0)


# While the child waits for its client.


def play(*script: Message) -> Message:
    return {"name": "a:play", "arguments": {"script": script}}


async def ask_and_answer_late(client: RawClient, *script: Message) -> Message:
    """Play a script that begins with a question, which is answered after the deadline; the response."""
    params: Any = play({"ask": {"a": ROOTS}}, *script)
    if client.is_modern:
        round_ = await client.result("tools/call", params)
        await asyncio.sleep(2)
        client.on_question = lambda method, params: {"result": {"roots": []}}
        return await client.send("tools/call", {**params, **client.answers(round_)})
    _, response = client.begin("tools/call", params)
    question = await client.question("roots/list")
    await asyncio.sleep(2)
    client.write({"id": question["id"], "result": {"roots": []}})
    return await response


@CLIENT_ERAS
async def test_a_client_may_take_longer_for_its_answer_than_the_child_for_the_call(modern: bool) -> None:
    async with serving(talking(), modern=modern, call_timeout=1.0) as (_, client, _):
        response = await ask_and_answer_late(client)
        assert json.loads(response["result"]["content"][0]["text"]) == [{"a": {"roots": []}}]


@CLIENT_ERAS
async def test_after_the_answer_the_deadline_runs_again(modern: bool) -> None:
    async with serving(talking(), modern=modern, call_timeout=1.0) as (_, client, _):
        response = await ask_and_answer_late(client, {"wait": "for ever"})
        assert response["error"]["message"] == too_late(1)


async def test_while_one_of_two_questions_is_open_the_deadline_rests() -> None:
    async with serving(talking(), call_timeout=1.0) as (_, client, _):
        _, response = client.begin("tools/call", play({"ask": {"a": ROOTS, "b": ROOTS}}))
        one, other = await client.question("roots/list"), await client.question("roots/list")
        client.write({"id": one["id"], "result": {"roots": []}})
        await asyncio.sleep(2)
        assert not response.done()
        client.write({"id": other["id"], "result": {"roots": []}})
        assert "result" in await response
