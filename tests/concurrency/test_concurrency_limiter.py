"""How many calls one child gets at once, who waits, and what that costs the others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from support.harness import MODERN, PATIENCE, RawClient, config, connected, lean, until
from support.serving import served

from fastmcp_aggregator import Aggregator, build_aggregator
from fastmcp_aggregator.concurrency.limiter import FairLimiter

pytestmark = pytest.mark.process

NOTE = [{"uri": "note://one", "name": "one"}]


@asynccontextmanager
async def busy(
    calls: int, *, name: str = "a:hold", **settings: Any
) -> AsyncIterator[tuple[Aggregator, RawClient, Any]]:
    """An app whose child `a` holds calls, of which so many have come, and `b` serves."""
    app = build_aggregator(config(a=lean(resources=NOTE), b=lean()), **settings)
    async with app, connected(app) as client:
        begun = [client.begin("tools/call", {"name": name, "arguments": {"number": n}}) for n in range(calls)]
        await until(lambda: sum(numbers(app)) == calls)
        yield app, client, begun


def numbers(app: Aggregator) -> tuple[int, int]:
    """How many calls to `a` are in flight, and how many wait."""
    status = app.health()["a"]
    return status.in_flight, status.waiting


async def number_of(answer: asyncio.Future[dict[str, Any]]) -> int:
    """Which call this is the answer to."""
    result = (await asyncio.wait_for(answer, PATIENCE))["result"]
    return int(json.loads(result["content"][0]["text"])["arguments"]["number"])


# Turns.


async def test_turns_are_had_in_the_order_in_which_they_were_waited_for() -> None:
    turns, had = FairLimiter(2, has_reserve=False), list[int]()

    async def wait(number: int) -> None:
        await turns.acquire(None)
        had.append(number)

    assert [turns.acquire_nowait(None), turns.acquire_nowait(None), turns.acquire_nowait(None)] == [True, True, False]
    waiting = [asyncio.create_task(wait(number)) for number in range(3)]
    await until(lambda: turns.waiting == 3)
    for number in range(3):
        turns.release(None)
        assert not turns.acquire_nowait(None), "it belongs to who has waited"
        await waiting[number]
        assert had == list(range(number + 1))
    assert (turns.taken, turns.waiting) == (2, 0)


async def test_who_is_cancelled_leaves_the_queue_even_if_the_turn_comes_at_the_same_moment() -> None:
    turns = FairLimiter(1, has_reserve=False)
    assert turns.acquire_nowait(None)
    first, second, third = (asyncio.create_task(turns.acquire(None)) for _ in range(3))
    await until(lambda: turns.waiting == 3)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert turns.waiting == 2
    turns.release(None)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    await asyncio.wait_for(third, PATIENCE)
    turns.release(None)
    assert (turns.taken, turns.waiting) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
async def test_whoever_is_cancelled_and_whenever_no_turn_is_lost_and_none_too_many_is_had(seed: int) -> None:
    random, turns, had = Random(seed), FairLimiter(3, has_reserve=False), 0
    most = 0

    async def use() -> None:
        nonlocal had, most
        if not turns.acquire_nowait(None):
            await turns.acquire(None)
        had += 1
        most = max(most, had)
        try:
            for _ in range(random.randrange(5)):
                await asyncio.sleep(0)
        finally:
            had -= 1
            turns.release(None)

    tasks = []
    for _ in range(200):
        tasks.append(asyncio.create_task(use()))
        if random.random() < 0.4:
            random.choice(tasks).cancel()
        if random.random() < 0.5:
            await asyncio.sleep(0)
    await asyncio.wait(tasks, timeout=PATIENCE)
    assert all(task.done() for task in tasks)
    assert (most, turns.taken, turns.waiting) == (3, 0, 0)


# Calls to one child.


async def test_so_many_calls_reach_a_child_and_the_others_wait(capfd: pytest.CaptureFixture[str]) -> None:
    async with busy(5, max_concurrent_calls=2) as (app, client, _):
        assert numbers(app) == (2, 3)
        assert (await client.call("b:echo"))["tool"] == "echo"
    assert capfd.readouterr().err.count("[a] holding") == 2


async def test_waiting_calls_are_sent_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    app = build_aggregator(config(a=lean()), servers={"a": {"max_concurrent_calls": 1}})
    async with app, connected(app) as client:
        client.begin("tools/call", {"name": "a:wait", "arguments": {"file": str(gate)}})
        answers = [client.begin("tools/call", {"name": "a:echo", "arguments": {"number": n}})[1] for n in range(20)]
        await until(lambda: numbers(app) == (1, 20))
        gate.touch()
        assert [await number_of(answer) for answer in answers] == list(range(20))
        ids = [json.loads(line).get("id") for line in client.lines]
        assert ids == sorted(ids, key=int)


async def test_a_call_that_is_one_too_many_is_refused_at_once_and_told_what_to_do() -> None:
    async with busy(3, max_concurrent_calls=1, max_waiting_requests=4) as (app, client, _):
        error = await client.error("tools/call", {"name": "a:echo"})
        assert error["message"] == (
            "server 'a': it is busy (calls in flight: 1, waiting: 2): no more may wait; "
            "try again later, or raise `max_concurrent_calls`"
        )
        assert error["data"] == {"server": "a", "phase": "runtime", "retryIn": None}
        assert numbers(app) == (1, 2)
        assert (await client.call("b:echo"))["tool"] == "echo"


async def test_a_call_that_has_no_turn_until_its_deadline_fails_and_leaves_the_queue() -> None:
    async with busy(1, max_concurrent_calls=1, read_timeout=0.1) as (app, client, _):
        error = await client.error("resources/read", {"uri": "note://a/one"})
        assert error["message"] == (
            "server 'a': it is busy (calls in flight: 1, waiting: 0): this one got no slot within 0.1 s; "
            "try again later, or raise `max_concurrent_calls`"
        )
        assert numbers(app) == (1, 0)


async def test_a_cancelled_call_leaves_the_queue_and_the_one_behind_it_is_next(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    app = build_aggregator(config(a=lean()), max_concurrent_calls=1)
    async with app, connected(app) as client:
        client.begin("tools/call", {"name": "a:wait", "arguments": {"file": str(gate)}})
        (cancelled, _), (_, next_one) = (
            client.begin("tools/call", {"name": "a:echo", "arguments": {"number": n}}) for n in range(2)
        )
        await until(lambda: numbers(app) == (1, 2))
        client.notify("notifications/cancelled", {"requestId": cancelled})
        await until(lambda: numbers(app) == (1, 1))
        gate.touch()
        assert await number_of(next_one) == 1
        assert numbers(app) == (0, 0)


async def test_a_cancelled_call_gives_its_turn_to_the_next() -> None:
    async with busy(2, max_concurrent_calls=1) as (app, client, begun):
        client.notify("notifications/cancelled", {"requestId": begun[0][0]})
        await until(lambda: numbers(app) == (1, 0))


async def test_a_crash_fails_the_calls_in_flight_and_those_that_wait_go_to_the_next_process() -> None:
    app = build_aggregator(config(a=lean()), max_concurrent_calls=2)
    async with app, connected(app) as client:
        lost = [client.begin("tools/call", {"name": "a:hold"})[1] for _ in range(2)]
        saved = [client.begin("tools/call", {"name": "a:echo", "arguments": {"number": n}})[1] for n in range(5)]
        await until(lambda: numbers(app) == (2, 5))
        os.kill(app.health()["a"].pid or 0, signal.SIGKILL)
        for answer in lost:
            error = (await asyncio.wait_for(answer, PATIENCE))["error"]
            assert "it was ended by signal SIGKILL while it was answering tools/call" in error["message"]
        assert [await number_of(answer) for answer in saved] == list(range(5))
        assert app.health()["a"].restarts == 1


async def test_calls_that_wait_for_a_server_that_is_removed_are_told_so() -> None:
    async with busy(3, max_concurrent_calls=1) as (app, _, begun):
        await app.reload(config(b=lean()))
        said = [(await asyncio.wait_for(answer, PATIENCE))["error"]["message"] for _, answer in begun]
        assert all("it was removed from the config" in message for message in said)
        assert [message.endswith("while it was answering tools/call") for message in said] == [True, False, False]


async def test_under_kills_and_cancellations_no_call_is_lost_and_never_too_many_are_in_flight() -> None:
    random, most = Random(7), 0
    app = build_aggregator(config(a=lean(), b=lean()), max_concurrent_calls=3)

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, numbers(app)[0])
            await asyncio.sleep(0)

    async with app, connected(app) as client:
        watching = asyncio.create_task(watch())
        cancelled: set[int] = set()
        begun = []
        for number in range(150):
            name = random.choice(["a:echo", "a:big"])
            begun.append(client.begin("tools/call", {"name": name, "arguments": {"size": 9}}))
            if random.random() < 0.2:
                cancelled.add(begun[-1][0])
                client.notify("notifications/cancelled", {"requestId": begun[-1][0]})
            if number in (50, 100):
                with suppress(ProcessLookupError):
                    os.kill(await until(lambda: app.health()["a"].pid), signal.SIGKILL)
        for request_id, answer in begun:
            if request_id not in cancelled:
                response = await asyncio.wait_for(answer, PATIENCE)
                assert "result" in response or "server 'a'" in response["error"]["message"]
        await until(lambda: numbers(app) == (0, 0))
        assert (await client.call("a:echo"))["tool"] == "echo"
        watching.cancel()
        assert most == 3


# Over HTTP.

CALL = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call"}
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


@asynccontextmanager
async def legacy_caller(url: str) -> AsyncIterator[Callable[[str], Any]]:
    async with Client(url, mode="legacy") as client:
        await client.list_tools()
        yield lambda name: client.call_tool_mcp(name, {})


@asynccontextmanager
async def modern_caller(url: str) -> AsyncIterator[Callable[[str], Any]]:
    async with httpx2.AsyncClient(timeout=None) as http:

        async def call(name: str) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": META}}
            answer = await http.post(url, json=body, headers={**CALL, "Mcp-Name": name})
            assert answer.status_code == 200, answer.text
            return answer.text

        yield call


@pytest.mark.parametrize("caller", [legacy_caller, modern_caller])
async def test_one_child_that_hangs_keeps_no_http_request_for_others_from_running(caller: Any) -> None:
    """With every place of the gate taken by requests for it: one of them in flight, and more wait than may run."""
    app = build_aggregator(config(a=lean(), b=lean()), max_concurrent_requests=4, max_waiting_requests=40)
    async with served(app) as front, caller(front.url) as call:
        stuck = [asyncio.create_task(call("a:hold")) for _ in range(20)]
        await until(lambda: numbers(app) == (1, 19))
        for _ in range(10):
            answers = await asyncio.wait_for(asyncio.gather(call("b:echo"), call("b:echo")), PATIENCE)
            assert all("echo" in str(answer) for answer in answers)
        assert numbers(app) == (1, 19)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        await until(lambda: numbers(app) == (0, 0))
        assert "echo" in str(await asyncio.wait_for(call("a:echo"), PATIENCE))
