"""What a server says before its answer comes before it, however close the two are, on both paths."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from support.harness import RawClient, config, connected, talking, until
from support.memory import Life, build_aggregator, scripted
from support.serving import served

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.front.fast_path.call import FastCall

ROOTS = {"roots": [{"uri": "file:///x"}]}
ASKED = {"id": "q", "method": "roots/list"}
LOGGED = {"method": "notifications/message", "params": {"level": "error", "data": "x"}}
FRONTS = pytest.mark.parametrize("front", ["pipe", "http"])
MODERN_OR_NOT = pytest.mark.parametrize("modern", [False, True])
PATHS = pytest.mark.parametrize("fast_path", [True, False])


@asynccontextmanager
async def client_of(app: Aggregator, front: str, *, modern: bool = False) -> AsyncIterator[RawClient]:
    """A client that can be asked for its roots."""
    async with AsyncExitStack() as stack:
        if front == "pipe":
            client = await stack.enter_async_context(connected(app, modern=modern, capabilities={"roots": {}}))
        else:
            served_app = await stack.enter_async_context(served(app))
            client = await served_app.connect(modern=modern, capabilities={"roots": {}})
        client.on_question = lambda method, params: {"result": ROOTS}
        await client.call("a:echo")
        yield client


def say_before_answer(life: Life, *said: dict[str, Any], turns: int | None) -> None:
    """Have the child say this before it answers a call; the answer comes so many turns of the event loop later, or, if
    None, in the same read.
    """

    def reply(request_id: Any, result: Any) -> None:
        lines = [{"jsonrpc": "2.0", **message} for message in (*said, {"id": request_id, "result": result})]
        encoded = [json.dumps(line).encode() for line in lines]
        if turns is None:
            life._feed(encoded)
            return
        life._feed(encoded[:-1])
        after(turns, lambda: life._feed(encoded[-1:]))

    life.child.reply = reply  # type: ignore[method-assign]


def after(turns: int, act: Any) -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(act) if turns == 0 else loop.call_soon(after, turns - 1, act)


async def is_quiet(app: Aggregator) -> None:
    await until(lambda: app._pipeline.in_flight._count == 0)
    assert {server.in_flight for server in app.health().values()} == {0}


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [message.get("method", "answer") for message in messages]


@PATHS
@FRONTS
@pytest.mark.parametrize("said", [[ASKED], [LOGGED, ASKED], [ASKED, LOGGED], [LOGGED, ASKED, LOGGED]])
async def test_a_question_just_before_the_answer_is_asked_before_it(
    said: list[dict[str, Any]], front: str, fast_path: bool
) -> None:
    app = build_aggregator(config(a=talking()), fast_path=fast_path)
    scripts = scripted(app)
    async with app, client_of(app, front) as client:
        life = scripts["a"].life
        for turns in (None, *range(20)):
            client.messages.clear()
            life.received.clear()
            say_before_answer(life, *said, turns=turns)
            await client.call("a:echo")
            heard = kinds(client.messages)
            assert sorted(heard) == sorted(["answer", *(message["method"] for message in said)]), turns
            assert heard[-1] == "answer", (turns, heard)
            answers = await until(lambda: [m for m in life.received if m.get("id") == "q"])
            assert answers[0]["result"] == ROOTS
        await is_quiet(app)
        assert app._backend.path_counts.taken_over.total() == (21 if fast_path else 0)


@PATHS
@FRONTS
async def test_the_roots_that_a_modern_client_is_asked_for_come_with_its_next_round(
    front: str, fast_path: bool
) -> None:
    app = build_aggregator(config(a=talking()), fast_path=fast_path)
    async with app, client_of(app, front, modern=True) as client:
        assert await client.play("a", {"ask": {"x": {"method": "roots/list"}}}) == [{"x": ROOTS}]
        await is_quiet(app)
        assert app._backend.path_counts.taken_over["question"] == int(fast_path)


@PATHS
@FRONTS
async def test_a_question_over_a_call_that_a_modern_client_has_had_answered_is_refused(
    front: str, fast_path: bool
) -> None:
    app = build_aggregator(config(a=talking()), fast_path=fast_path)
    scripts = scripted(app)
    async with app, client_of(app, front, modern=True) as client:
        life = scripts["a"].life
        for turns in (None, 0, 1, 2, 5):
            life.received.clear()
            say_before_answer(life, ASKED, turns=turns)
            response = await client.converse("tools/call", {"name": "a:echo", "arguments": {}})
            assert "content" in response["result"], turns
            answers = await until(lambda: [m for m in life.received if m.get("id") == "q"])
            was_in_time = turns is not None and answers[0].get("result") == ROOTS  # it may be, turns later
            assert was_in_time or "is over" in answers[0]["error"]["message"]
        await is_quiet(app)


@PATHS
@MODERN_OR_NOT
async def test_a_question_is_nobodys_while_calls_of_two_clients_are_in_flight(modern: bool, fast_path: bool) -> None:
    app = build_aggregator(config(a=talking()), fast_path=fast_path)
    scripts = scripted(app)
    async with app, served(app) as front:
        clients = [await front.connect(modern=modern, capabilities={"roots": {}}) for _ in range(2)]
        for client in clients:
            await client.call("a:echo")
        life = scripts["a"].life
        waiting = {"name": "a:play", "arguments": {"script": [{"wait": "gate"}]}}
        answers = [client.begin("tools/call", waiting)[1] for client in clients]
        await until(lambda: app.health()["a"].in_flight == 2)
        life._feed([json.dumps({"jsonrpc": "2.0", **ASKED}).encode()])
        refused = await until(lambda: [m for m in life.received if m.get("id") == "q"])
        assert "which client to ask" in refused[0]["error"]["message"]
        await clients[0].call("a:open", gate="gate")
        for answer in answers:
            assert "result" in await answer
        assert not any(client.questions for client in clients)
        await is_quiet(app)


ASKING = {"name": "a:play", "arguments": {"script": [{"ask": {"x": {"method": "roots/list"}}}]}}


def taken_over_and_cancelled(take_over: Any) -> Any:
    """`FastCall.take_over`, and then the client cancels the call."""

    def both(fast: FastCall, reason: str) -> None:
        take_over(fast, reason)
        asyncio.get_running_loop().call_soon(fast.abandon)

    return both


@MODERN_OR_NOT
@FRONTS
async def test_a_question_over_a_call_that_is_cancelled_before_the_full_path_has_it_is_refused(
    front: str, modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = build_aggregator(config(a=talking()))
    scripts = scripted(app)
    async with app, client_of(app, front, modern=modern) as client:
        life = scripts["a"].life
        life.child.cancel = lambda request_id: None  # type: ignore[method-assign]
        monkeypatch.setattr(FastCall, "take_over", taken_over_and_cancelled(FastCall.take_over))
        client.begin("tools/call", ASKING)
        answers = await until(lambda: [m for m in life.received if "method" not in m])
        assert "is over" in answers[0]["error"]["message"]
        assert not client.questions
        await is_quiet(app)


@PATHS
async def test_a_question_over_a_call_that_is_cancelled_is_asked_or_refused(fast_path: bool) -> None:
    app = build_aggregator(config(a=talking()), fast_path=fast_path)
    scripts = scripted(app)
    async with app, client_of(app, "pipe") as client:
        life = scripts["a"].life
        life.child.cancel = lambda request_id: None  # type: ignore[method-assign]
        for turns in range(20):
            client.forget()
            life.received.clear()
            request_id, _ = client.begin("tools/call", ASKING)
            after(turns, partial(client.notify, "notifications/cancelled", {"requestId": request_id}))
            await until(lambda: any(message.get("method") == "notifications/cancelled" for message in life.received))
            await until(lambda: client.questions or any("error" in message for message in life.received))
            await is_quiet(app)
