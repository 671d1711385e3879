"""A server that answers anything: good calls are answered, to it and to the others, and nothing breaks or grows."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import pytest
from fastmcp.server.middleware import Middleware
from fuzzing import SCALE, Draw, Watch, draws
from garbage import Garbage, listings, results, server_messages
from mcp_types.methods import validate_server_result
from support.harness import LEGACY, MODERN, PATIENCE, RawClient, config, connected, lean, until

from fastmcp_aggregator import Aggregator, build_aggregator

pytestmark = pytest.mark.fuzz

BREAKDOWNS = ("Internal server error", "Handler returned an invalid result")
"""What clients are told of an exception that nobody has expected; that, or the error code 0."""
LINES = 40
CALLS_OF_ONE_LIFE = 15
"""So that it writes less junk than that for which a server is replaced."""
LIVES = 1
RESULTS = 25
STARTS = 8


def error_records(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def is_breakdown(answer: dict[str, Any]) -> bool:
    error = answer.get("error", {"code": 1, "message": ""})
    return error["code"] == 0 or error["message"] in BREAKDOWNS


async def answer_to(client: RawClient, name: str, arguments: dict[str, Any], told: Any) -> dict[str, Any]:
    """The answer to a call that asks for progress; there must be one."""
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}}
    try:
        return await asyncio.wait_for(client.begin("tools/call", params)[1], PATIENCE)
    except TimeoutError:
        raise AssertionError(f"no answer: {told}") from None


async def check(app: Aggregator, client: RawClient, told: Any) -> None:
    """The server is still the same one, and answers a good call; so does another."""
    for key in ("a", "b"):
        answer = await answer_to(client, f"{key}:echo", {"nonce": str(told)}, told)
        assert "result" in answer, f"{answer}: {told}"
        assert json.loads(answer["result"]["content"][0]["text"])["arguments"] == {"nonce": str(told)}, told
        assert app.health()[key].restarts == 0, told


async def one_life(what: str, *, modern: bool, caplog: Any) -> None:
    app = build_aggregator(config(a=lean(era="modern" if modern else "legacy"), b=lean()))
    async with app, connected(app) as client:
        for number in range(CALLS_OF_ONE_LIFE):
            draw = Draw(what, number)
            garbage = Garbage(draw.random, server_messages())
            lines = b"\n".join(garbage.line() for _ in range(LINES))
            await answer_to(client, "a:junk", {"lines": 1, "hex": lines.hex()}, draw)
            await check(app, client, draw)
            assert not error_records(caplog), draw
            client.notifications.clear()
            client.lines.clear()


@pytest.mark.parametrize("modern", [False, True], ids=["legacy server", "modern server"])
async def test_good_calls_between_malformed_lines_of_a_server_are_answered(modern: bool, caplog: Any) -> None:
    what = "modern server" if modern else "legacy server"
    await one_life(f"early {what}", modern=modern, caplog=caplog)
    watch = Watch(what)
    for draw in draws(what, LIVES):
        await one_life(f"{what} {draw.number}", modern=modern, caplog=caplog)
        caplog.clear()
    report = watch.report(LIVES * SCALE * CALLS_OF_ONE_LIFE * LINES)
    with suppress(TimeoutError):
        await until(lambda: not watch.has_grown)
    assert not watch.has_grown, report


@pytest.mark.parametrize("modern", [False, True], ids=["legacy server", "modern server"])
async def test_whatever_a_server_answers_to_a_call_its_caller_gets_an_answer(modern: bool, caplog: Any) -> None:
    app = build_aggregator(config(a=lean(era="modern" if modern else "legacy"), b=lean()))
    async with app, connected(app) as legacy, connected(app, modern=True) as client:
        legacy.on_question = lambda method, params: {"error": {"code": -1, "message": "no"}}
        for draw in draws("modern result" if modern else "legacy result", RESULTS):
            random = draw.random
            result = Garbage(random, results()).value(random.choice(results()))
            for caller in (legacy, client):
                answer = await answer_to(caller, "a:raw", result, f"{draw}: {result}")
                assert not is_breakdown(answer), f"{answer}: {draw}: {result}"
            caller.notifications.clear()
        await check(app, client, "after it")
    assert not error_records(caplog)


@pytest.mark.parametrize("with_middleware", [False, True], ids=["by itself", "with middleware"])
async def test_whatever_servers_list_the_good_ones_are_listed_and_called(with_middleware: bool, caplog: Any) -> None:
    for draw in draws("starts", 1):
        random = draw.random
        odd = {}
        for number in range(STARTS):
            garbage = Garbage(random, [])
            answers = {method: garbage.value(result) for method, result in listings().items()}
            era = random.choice(("legacy", "modern"))
            odd[f"s{number}"] = lean(era=era, results={m: a for m, a in answers.items() if isinstance(a, dict)})
        app = build_aggregator(config(a=lean(), **odd, b=lean()), strict=False, startup_timeout=10.0)
        if with_middleware:
            app.add_middleware(Middleware())
        async with app, connected(app) as legacy, connected(app, modern=True) as client:
            await until(lambda: all(child.settled.is_set() for child in app.children.values()))  # noqa: B023
            for caller, version in ((legacy, LEGACY), (client, MODERN)):
                for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
                    listed = await caller.send(method)
                    assert "result" in listed, f"{method}: {listed}: {draw}"
                    validate_server_result(method, version, listed["result"])
                assert {"a:echo", "b:echo"} <= set(await caller.names()), draw
            await check(app, client, draw)
    assert not error_records(caplog)
