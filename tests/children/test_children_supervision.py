"""The supervision of children in memory, by a clock that jumps: retries, crash loops, health checks, the breaker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.harness import config, lean
from support.memory import Script, scripted
from support.virtual_time import VirtualTimePolicy, now

import fastmcp_aggregator
from fastmcp_aggregator import Aggregator, ChildServerError, ChildState, load_config
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.timings import Timings

ECHO = {"name": "echo", "arguments": {}}
HOLD = {"name": "hold", "arguments": {}}
TIMES = Timings(clock=now, jitter=lambda: 1.0)


@pytest.fixture
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


@asynccontextmanager
async def supervised(**settings: Any) -> AsyncIterator[tuple[Child, Script, Aggregator]]:
    """A running child, and the script of its lives."""
    app = fastmcp_aggregator.build_aggregator(config(a=lean()), strict=False, **settings)
    scripts = scripted(app, TIMES)
    async with app:
        await app.children["a"].until_settled()
        yield app.children["a"], scripts["a"], app


async def until(condition: Callable[[], Any]) -> None:
    """Let time pass until it holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it never came about")


async def test_retry_is_immediate_for_a_child_that_served() -> None:
    async with supervised() as (child, script, _):
        for lives in range(2, 2 * TIMES.crash_loop):
            await asyncio.sleep(TIMES.served_after)
            died = now()
            script.life.die()
            await until(lambda: len(script.lives) == lives and child.is_serving)  # noqa: B023
            assert now() - died < 0.1


async def test_backoff_doubles_until_the_crash_loop() -> None:
    async with supervised() as (child, script, _):
        script.options["exit_at_start"] = 3
        starts = len(script.lives)
        script.life.die()
        waits = []
        for count in range(1, TIMES.crash_loop + 1):
            await until(lambda: len(script.lives) == starts + count - 1 and child.state is ChildState.FAILED)  # noqa: B023
            waits.append(child.retry_in or 0.0)
        assert waits == pytest.approx([0.5, 1, 2, 4, TIMES.crash_loop_delay], abs=0.1)
        assert str(child.last_failure).endswith("it exited with code 3")


async def test_call_in_a_crash_loop_triggers_a_start_every_ten_seconds() -> None:
    async with supervised() as (child, script, _):
        script.options["exit_at_start"] = 3
        script.life.die()
        await until(lambda: child.retry_in is not None and child.retry_in > 100)
        starts = len(script.lives)
        with pytest.raises(ChildServerError) as caught:
            await child.calls.request("tools/call", ECHO)
        assert 9 < (caught.value.retry_in or 0) <= TIMES.crash_loop_pause
        assert len(script.lives) == starts
        script.options.clear()
        await asyncio.sleep(TIMES.crash_loop_pause)
        assert await child.calls.request("tools/call", ECHO)
        assert len(script.lives) == starts + 1


async def test_call_wakes_a_child_in_backoff_and_waits_for_it() -> None:
    async with supervised() as (child, script, _):
        script.failure = ChildServerError("a", "startup", "no such command")
        script.life.die()
        await until(lambda: (child.retry_in or 0) > 30)
        script.failure = None
        before = now()
        assert await child.calls.request("tools/call", ECHO)
        assert now() - before < 0.1


async def test_failed_child_whose_retries_are_suspended_is_started_again_by_a_call_alone() -> None:
    async with supervised() as (child, script, _):
        script.options["exit_at_start"] = 3
        child.suspend_retries()
        script.life.die()
        await until(lambda: child.state is ChildState.FAILED)
        starts = len(script.lives)
        await asyncio.sleep(3600)
        assert len(script.lives) == starts
        assert child.state is ChildState.FAILED
        with pytest.raises(ChildServerError):
            await child.calls.request("tools/call", ECHO)
        assert len(script.lives) > starts


async def test_call_waits_within_a_bound_for_a_start_that_hangs() -> None:
    async with supervised() as (child, script, _):
        script.options["silent"] = True
        script.life.die()
        await until(lambda: len(script.lives) == 2)
        before = now()
        with pytest.raises(ChildServerError, match="it is unavailable"):
            await child.calls.request("tools/call", ECHO)
        assert now() - before == pytest.approx(TIMES.wake_bound, abs=0.1)


async def test_health_check_replaces_a_frozen_idle_child() -> None:
    async with supervised() as (child, script, _):
        script.life.freeze()
        frozen = now()
        await until(lambda: child.past_failure is not None)
        assert now() - frozen == pytest.approx(TIMES.health_interval + TIMES.health_deadline, abs=0.2)
        assert child.past_failure is not None
        assert child.past_failure.reason == "it did not answer the health check within 10 s"
        await until(lambda: child.is_serving)
        assert [life.code for life in script.lives] == [0, None]


async def test_health_check_leaves_a_healthy_child_alone() -> None:
    async with supervised() as (child, script, _):
        await asyncio.sleep(10 * TIMES.health_interval)
        pings = [message for message in script.life.received if message["method"] == "ping"]
        assert 8 <= len(pings) <= 10
        assert len(script.lives) == 1
        assert child.is_serving


async def test_health_check_spares_a_busy_child() -> None:
    async with supervised() as (child, script, _):
        call = asyncio.create_task(child.calls.request("tools/call", HOLD))
        await asyncio.sleep(4 * TIMES.health_interval)
        assert [message for message in script.life.received if message["method"] == "ping"] == []
        call.cancel()
        await asyncio.wait({call})


async def test_breaker_opens_after_five_timeouts_and_closes_with_an_answer() -> None:
    async with supervised(call_timeout=1.0) as (child, script, _):
        for _ in range(TIMES.failures_to_open):
            with pytest.raises(ChildServerError, match="did not answer tools/call within 1 s"):
                await child.calls.request("tools/call", HOLD)
        asked = len(script.life.received)
        with pytest.raises(ChildServerError, match="several times in a row, next try in 30 s"):
            await child.calls.request("tools/call", ECHO)
        assert len(script.life.received) == asked
        await asyncio.sleep(TIMES.first_open)
        assert await child.calls.request("tools/call", ECHO)
        assert not child.calls.breaker.is_open


async def test_call_in_flight_fails_with_the_reason_when_its_child_dies() -> None:
    async with supervised() as (child, script, _):
        call = asyncio.create_task(child.calls.request("tools/call", HOLD))
        await until(lambda: child.calls.in_flight)
        script.life.die(7)
        with pytest.raises(ChildServerError, match=r"it exited with code 7.* while it was answering tools/call"):
            await call
        await until(lambda: child.is_serving)


async def test_exchange_closes_the_predecessor_before_the_successor_starts() -> None:
    async with supervised() as (_, script, app):
        app._backend.exchange(load_config(config(a=lean(name="other"))))
        await until(lambda: len(script.lives) == 2 and app.children["a"].is_serving)
        assert [life.code for life in script.lives] == [0, None]


async def test_exchange_leaves_an_equal_entry_alone() -> None:
    async with supervised() as (child, script, app):
        app._backend.exchange(load_config(config(a=lean(), b=lean())))
        await until(lambda: app.children["b"].is_serving)
        assert app.children["a"] is child
        assert len(script.lives) == 1


async def test_restart_exchanges_the_process_and_keeps_the_lists() -> None:
    async with supervised(list_grace=15) as (child, script, app):
        before = [tool.name for tool in await app.list_tools()]
        app.restart("a")
        assert [tool.name for tool in await app.list_tools()] == before
        await until(lambda: len(script.lives) == 2 and app.children["a"].is_serving)
        assert [life.code for life in script.lives] == [0, None]
        assert not child.is_serving
        assert await app.children["a"].calls.request("tools/call", ECHO)


async def test_restart_ends_a_crash_loop_and_a_start_that_hangs() -> None:
    async with supervised() as (child, script, app):
        script.options["exit_at_start"] = 3
        script.life.die()
        await until(lambda: child.retry_in is not None and child.retry_in > 100)
        del script.options["exit_at_start"]
        app.restart("a")
        await until(lambda: app.children["a"].is_serving)


async def test_restart_fails_the_calls_that_the_server_was_answering() -> None:
    async with supervised() as (child, _, app):
        call = asyncio.create_task(child.calls.request("tools/call", HOLD))
        await until(lambda: child.calls.in_flight)
        app.restart("a")
        with pytest.raises(ChildServerError, match="it is being restarted"):
            await call


async def test_restart_of_an_unknown_server_says_which_there_are() -> None:
    async with supervised() as (_, _, app):
        with pytest.raises(fastmcp_aggregator.AggregatorError, match="there is no server 'b'; there are: a"):
            app.restart("b")
