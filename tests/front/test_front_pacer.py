"""Who takes much of the loop's time pauses while others are there; see `Pacer`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.credentials import Credentials
from support.harness import config, lean, until
from support.memory import build_aggregator
from support.serving import served
from support.virtual_time import VirtualTimeLoop, now

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.access.roles import ROLES
from fastmcp_aggregator.front.http import gate
from fastmcp_aggregator.front.http.gate import Charged, Pacer

Work = Callable[[], Awaitable[None]]


async def _at_once() -> None: ...


class Loop:
    """Requests whose work takes so much of the loop's time, by a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.worked = self.stood_still = 0.0
        monkeypatch.setattr(gate, "perf_counter", lambda: self.worked + self.stood_still)
        monkeypatch.setattr(gate, "thread_time", lambda: self.worked)
        self.pacer = Pacer(now)

    async def request(self, holder: str, takes: float, work: Work = _at_once) -> float:
        """Make one; the seconds that it waited for its turn."""
        request = self.pacer.request_of(holder)
        waited = 0.0

        async def serve() -> None:
            nonlocal waited
            waited = request.pause()
            await asyncio.sleep(waited)
            self.worked += takes
            await work()

        await Charged(request, serve())
        return waited

    async def flood(self, holder: str, takes: float, seconds: float, connections: int = 8) -> int:
        """Requests on so many connections, each after the one before; how many there were."""
        done, end = 0, asyncio.get_running_loop().time() + seconds

        async def repeat() -> None:
            nonlocal done
            while asyncio.get_running_loop().time() < end:
                await self.request(holder, takes)
                done += 1
                await asyncio.sleep(0.0001)

        await asyncio.gather(*(repeat() for _ in range(connections)))
        return done


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def run(work: Coroutine[Any, Any, None]) -> None:
    virtual = VirtualTimeLoop()
    try:
        virtual.run_until_complete(work)
    finally:
        virtual.close()


async def others_are_there(loop: Loop) -> None:
    await loop.request("ann", 0.0)
    await loop.request("bob", 0.0)


@pytest.mark.parametrize("takes", [0.001, 0.01, 0.1])
def test_a_caller_has_a_quarter_of_the_loop_s_time_while_others_are_there(loop: Loop, takes: float) -> None:
    async def work() -> None:
        await others_are_there(loop)
        done = await loop.flood("ann", takes, seconds=20)
        assert 0.2 < done * takes / 20 < 0.3

    run(work())


def test_others_never_wait(loop: Loop) -> None:
    async def work() -> None:
        await others_are_there(loop)
        flooding = asyncio.create_task(loop.flood("ann", 0.01, seconds=5))
        for _ in range(40):
            await asyncio.sleep(0.1)
            assert await loop.request("bob", 0.001) == 0
        await flooding

    run(work())


def test_who_is_alone_never_waits(loop: Loop) -> None:
    async def work() -> None:
        assert await loop.flood("ann", 0.1, seconds=0.1) > 1000
        await others_are_there(loop)
        await asyncio.sleep(61)
        assert await loop.flood("ann", 0.1, seconds=0.1) > 1000

    run(work())


def test_who_costs_little_never_waits(loop: Loop) -> None:
    async def work() -> None:
        await others_are_there(loop)
        for _ in range(100):
            assert await loop.request("ann", 0.002) == 0
            await asyncio.sleep(0.01)

    run(work())


def test_a_pause_is_over_when_what_was_taken_is_paid(loop: Loop) -> None:
    async def work() -> None:
        await others_are_there(loop)
        await loop.request("ann", 0.1)
        assert 0.35 < await loop.request("ann", 0.1) < 0.4
        await asyncio.sleep(0.41)
        assert await loop.request("ann", 0.1) == 0

    run(work())


def test_a_request_that_takes_seconds_is_owed_whole(loop: Loop) -> None:
    async def work() -> None:
        await others_are_there(loop)
        await loop.request("ann", 2.0)
        assert 7.9 < await loop.request("ann", 0.1) < 8

    run(work())


def test_while_the_machine_stands_still_little_is_owed(loop: Loop) -> None:
    async def work() -> None:
        async def stands_still() -> None:
            loop.stood_still += 20

        await others_are_there(loop)
        await loop.request("ann", 0.1, stands_still)
        assert await loop.request("ann", 0.1) < 1

    run(work())


def test_what_others_do_for_a_request_is_owed_too(loop: Loop) -> None:
    async def work() -> None:
        await others_are_there(loop)
        loop.pacer.request_of("ann").pause(0.1)
        assert 0.35 < await loop.request("ann", 0.1) < 0.4

    run(work())


def test_a_request_that_is_given_up_while_it_waits_costs_nothing(loop: Loop) -> None:
    async def work() -> None:
        await others_are_there(loop)
        await loop.request("ann", 0.1)
        given_up = [asyncio.create_task(loop.request("ann", 0.1)) for _ in range(50)]
        await asyncio.sleep(0.01)
        for task in given_up:
            task.cancel()
        ended = await asyncio.gather(*given_up, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)
        assert await loop.request("ann", 0.1) < 0.4

    run(work())


def test_the_result_and_the_error_of_the_work_are_its_own(loop: Loop) -> None:
    async def work() -> None:
        async def fails() -> None:
            await asyncio.sleep(1)
            raise ValueError("its own")

        with pytest.raises(ValueError, match="its own"):
            await loop.request("ann", 0.1, fails)

    run(work())


def test_few_callers_are_known_for_long(loop: Loop) -> None:
    async def work() -> None:
        await others_are_there(loop)
        await loop.request("ann", 0.2)
        for number in range(5 * gate._MOST_CALLERS):
            loop.pacer.request_of(str(number))
        assert len(loop.pacer.accounts) <= gate._MOST_CALLERS
        assert "ann" in loop.pacer.accounts

    run(work())


async def test_notifications_into_a_session_are_paced_and_wait_as_bytes(tmp_path: Path) -> None:
    """A session takes all of them at once, and what is made of them waits there."""
    credentials = Credentials(tmp_path, {"ann": None, "bob": None})
    app = build_aggregator(config(a=lean()), auth=credentials.auth)
    nested = "[" * 90 + "]" * 90
    params = f'{{"progressToken": "x", "progress": 1, "z": [{",".join([nested] * 300)}]}}'
    body = f'{{"jsonrpc": "2.0", "method": "notifications/progress", "params": {params}}}'.encode()
    async with served(app) as front, front.browser() as http:
        await http.post("/mcp/tools/list", headers=credentials.of("bob"), json={})
        client = await front.connect(headers=credentials.of("ann"))
        headers = {**credentials.of("ann"), **client._session, "content-type": "application/json"}
        headers["accept"] = "application/json, text/event-stream"
        posts = [asyncio.create_task(http.post("/mcp", headers=headers, content=body)) for _ in range(20)]
        admission = app._backend.admission
        await until(lambda: admission.body_bytes.taken > 10 * len(body))
        account = admission.pacer.accounts[Principal("key:ann").bare]
        assert account.owed > 0
        assert {(await post).status_code for post in posts} == {202}


@pytest.mark.parametrize("kind", ["session", "sse"])
async def test_a_request_is_owed_what_its_values_cost_the_tasks_of_its_session(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "perf_counter", lambda: 0.0)
    credentials = Credentials(tmp_path, {"ann": None, "bob": None})
    app = build_aggregator(config(a=lean()), auth=credentials.auth, fast_path=False)
    values = {"_meta": {"x": [[[] for _ in range(90)] for _ in range(250)]}}
    async with served(app) as front, front.browser() as http:
        await http.post("/mcp/tools/list", headers=credentials.of("bob"), json={})
        connect = front.connect if kind == "session" else front.connect_sse
        client = await connect(headers=credentials.of("ann"))
        account = app._backend.admission.pacer.accounts[Principal("key:ann").bare]
        await client.result("ping", values)
        await until(lambda: account.owed > 0.015)


async def test_whatever_is_asked_for_by_get_is_charged_but_signs_of_life(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, {"ann": None, "bob": None}, {"ann": ROLES})
    app = build_aggregator(config(a=lean()), auth=credentials.auth, metrics=True)
    async with served(app) as front, front.browser(**credentials.of("ann")) as http:
        accounts, ann = app._backend.admission.pacer.accounts, Principal("key:ann").bare
        for path in ("/health", "/ready"):
            assert (await http.get(path)).status_code == 200
        assert ann not in accounts
        for path in ("/status", "/metrics", "/openapi.json", "/groups", "/keys", "/pins", "/dashboard/state"):
            average = accounts[ann].average if ann in accounts else 0.0
            assert (await http.get(path)).status_code == 200
            await until(lambda before=average: ann in accounts and accounts[ann].average != before)
