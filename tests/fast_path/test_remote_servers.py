"""Calls to remote servers on the fast path: sent by the SDK's session, and taken over as all others are."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from support.harness import RawClient, config, connected, until
from support.memory import build_aggregator
from support.remote_server import Request, remote_server
from support.serving import served
from support.talking_server import TalkingServer, talking_server
from support.wire import text_of

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.front.fast_path import http
from fastmcp_aggregator.status.path_counts import PathCounts

FRONTS = pytest.mark.parametrize("front", ["pipe", "http"])
CLIENTS = pytest.mark.parametrize("modern", [False, True])
SERVERS = pytest.mark.parametrize("era", ["legacy", "modern"])
CANCELLED = "notifications/cancelled"
LOGGED = {"say": "notifications/message", "params": {"level": "error", "data": "x"}}
QUESTION = {"ask": {"x": {"method": "roots/list"}}}
GATE = {"wait": "gate"}
TOKENS = itertools.count(1)


pytestmark = pytest.mark.usefixtures("nothing_takes_long")


def counts(app: Aggregator) -> PathCounts:
    return app._backend.path_counts


async def is_quiet(app: Aggregator) -> None:
    """Wait until nothing is on its way."""
    await until(lambda: app._pipeline.in_flight._count == 0)
    await until(lambda: {server.in_flight for server in app.health().values()} == {0})
    runtime = app._backend.runtime
    assert runtime is not None
    sessions = [child.session for child in runtime.children.values() if child.session is not None]
    await until(lambda: not any(session.direct.count or session._requests._in_flight for session in sessions))
    assert not app._pipeline.fast_path._cancellable


@asynccontextmanager
async def client_of(app: Aggregator, front: str, *, modern: bool, **about: Any) -> AsyncIterator[RawClient]:
    async with AsyncExitStack() as stack:
        if front == "pipe":
            yield await stack.enter_async_context(connected(app, modern=modern, **about))
        else:
            yield await (await stack.enter_async_context(served(app))).connect(modern=modern, **about)


@asynccontextmanager
async def talk(
    front: str, *, modern: bool, era: str = "legacy", capabilities: Any = None, **settings: Any
) -> AsyncIterator[tuple[Aggregator, TalkingServer, RawClient]]:
    """An app before a remote server, whose client has called once, and the counts are at 0."""
    about = {} if capabilities is None else {"capabilities": capabilities}
    async with (
        talking_server(era=era) as server,
        build_aggregator(config(r=server.entry), **settings) as app,
        client_of(app, front, modern=modern, **about) as client,
    ):
        await client.call("r:echo")
        app._backend.path_counts.answered = 0
        app._backend.path_counts.declined.clear()
        yield app, server, client
        await is_quiet(app)


def play(*steps: Any) -> dict[str, Any]:
    """The parameters of a call of this script, which asks for progress."""
    return {"name": "r:play", "arguments": {"script": [*steps]}, "_meta": {"progressToken": next(TOKENS)}}


@FRONTS
@CLIENTS
@SERVERS
async def test_plain_calls_are_answered(front: str, modern: bool, era: str) -> None:
    async with talk(front, modern=modern, era=era) as (app, _, client):
        for number in range(3):
            assert (await client.call("r:echo", x=number))["arguments"] == {"x": number}
        assert counts(app).answered == 3
        assert not counts(app).declined
        assert not counts(app).taken_over


@FRONTS
@CLIENTS
@SERVERS
@pytest.mark.parametrize(
    ("step", "reason"),
    [({"progress": [1]}, "notification"), ({"fail": {"code": -5, "message": "no"}}, "error")],
)
async def test_what_turns_out_unusual_is_taken_over(step: Any, reason: str, front: str, modern: bool, era: str) -> None:
    async with talk(front, modern=modern, era=era) as (app, _, client):
        params = play(step)
        response = await client.send("tools/call", params)
        assert ("error" in response) is (reason == "error")
        assert counts(app).taken_over == {reason: 1}
        assert counts(app).answered == 0
        if reason == "notification":
            told = await client.heard("notifications/progress")
            assert told["params"]["progressToken"] == params["_meta"]["progressToken"]


@FRONTS
async def test_log_messages_and_questions_come_before_the_answer(front: str) -> None:
    async with talk(front, modern=False, capabilities={"roots": {}}) as (app, _, client):
        client.on_question = lambda method, params: {"result": {"roots": []}}
        for steps, reason in (
            ([LOGGED], "notification"),
            ([QUESTION], "question"),
            ([LOGGED, QUESTION], "notification"),
        ):
            before = counts(app).taken_over[reason]
            await client.result("tools/call", play(*steps))
            assert counts(app).taken_over[reason] == before + 1
        assert len([message for message in client.notifications if message["method"] == "notifications/message"]) == 2
        assert counts(app).answered == 0


@FRONTS
@CLIENTS
async def test_a_question_of_a_legacy_server_reaches_clients_of_both_eras(front: str, modern: bool) -> None:
    async with talk(front, modern=modern, capabilities={"roots": {}}) as (app, _, client):
        client.on_question = lambda method, params: {"result": {"roots": []}}
        response = await client.converse("tools/call", play(QUESTION))
        assert "result" in response
        assert counts(app).taken_over == {"question": 1}


@CLIENTS
@SERVERS
async def test_an_answer_that_takes_long_comes_from_the_transport(
    modern: bool, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talk("http", modern=modern, era=era) as (app, server, client):
        monkeypatch.setattr(http.Exchange, "answer_timeout", 0.0)
        _, answer = client.begin("tools/call", play(GATE))
        await until(lambda: counts(app).taken_over["takes long"] == 1)
        await until(lambda: server.waiting("gate"))
        monkeypatch.setattr(http.Exchange, "answer_timeout", 60.0)
        await client.call("r:open", gate="gate")
        assert "result" in await answer
        assert counts(app).answered == 1


@FRONTS
@CLIENTS
@SERVERS
async def test_a_call_that_is_cancelled_ends_at_the_server(
    front: str, modern: bool, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        http.Exchange, "answer_timeout", http.ANSWER_TIMEOUT
    )  # so long nobody sees that a client hangs up
    async with talk(front, modern=modern, era=era) as (app, server, client):
        request_id, _ = client.begin("tools/call", play(GATE))
        await until(lambda: server.waiting("gate"))
        if front == "http" and modern:
            client.hang_up(request_id)  # type: ignore[attr-defined]
        else:
            client.notify(CANCELLED, {"requestId": request_id})
        if era == "legacy":
            await until(lambda: server.counts[CANCELLED] == 1)
        else:
            await until(lambda: len(server.streams) <= 1)  # what is left is that of changes
        await is_quiet(app)
        assert sum(counts(app).taken_over.values()) == 1
        assert counts(app).answered == 0


@FRONTS
@CLIENTS
async def test_a_deadline_is_kept(front: str, modern: bool) -> None:
    async with talk(front, modern=modern) as (app, _, client):
        app._backend.children["r"].calls._deadline = 0.05
        error = await client.error("tools/call", play(GATE))
        assert error["message"] == "server 'r': it did not answer tools/call within 0.05 s"
        assert app.health()["r"].unanswered == 1
        assert sum(counts(app).taken_over.values()) == 1


@asynccontextmanager
async def misbehaving(
    front: str, misbehave: Callable[[Request], Any], *, modern: bool = False
) -> AsyncIterator[tuple[Aggregator, Any, RawClient]]:
    """An app before a server that misbehaves once the client has called."""
    async with (
        remote_server() as server,
        build_aggregator(config(r={"url": server.url})) as app,
        client_of(app, front, modern=modern) as client,
    ):
        await client.call("r:echo")
        before = counts(app).declined.copy()
        server.misbehave = misbehave
        yield app, server, client
        assert counts(app).declined == before
        await is_quiet(app)


@FRONTS
@pytest.mark.parametrize(
    ("status", "words"), [(500, "status 500"), (404, "its session had expired"), (429, "429"), (403, "403")]
)
async def test_a_failure_on_the_way_is_told_as_by_the_full_path(status: int, words: str, front: str) -> None:
    async def misbehave(request: Request) -> bool:
        if request.method == "tools/call":
            await request.respond(status)
        return request.method == "tools/call"

    async with misbehaving(front, misbehave) as (app, server, client):
        error = await client.error("tools/call", {"name": "r:echo"})
        assert error["message"].startswith("server 'r': ")
        assert words in error["message"]
        assert server.counts["tools/call"] == 2
        assert counts(app).taken_over == {"error": 1}


@FRONTS
async def test_a_read_on_an_expired_session_is_asked_again(front: str) -> None:
    async with misbehaving(front, lambda _: asyncio.sleep(0)) as (app, server, client):
        await client.result("prompts/get", {"name": "r:ask"})
        server.forget_session()
        prompt = await client.result("prompts/get", {"name": "r:ask"})
        assert prompt["messages"][0]["content"]["text"] == "session-2"
        assert counts(app).taken_over == {"error": 1}


@FRONTS
async def test_a_server_that_is_gone_is_told(front: str) -> None:
    async def misbehave(request: Request) -> bool:
        if request.method == "tools/call":
            await server.stop()
        return request.method == "tools/call"

    async with misbehaving(front, misbehave) as (app, server, client):
        error = await client.error("tools/call", {"name": "r:echo"})
        assert error["message"].startswith("server 'r': the connection broke before it had answered")
        assert counts(app).taken_over == {"error": 1}


@CLIENTS
async def test_a_client_that_can_come_back_is_hung_up_on_as_the_server_has_us_do(modern: bool) -> None:
    """It ends its response before its answer, which it gives on a stream that is resumed (2025-11-25, polling)."""
    go_on = asyncio.Event()
    asked: list[Request] = []

    async def misbehave(request: Request) -> bool:
        if request.method == "tools/call":
            asked.append(request)
            await request.respond(200, "id: 1\nretry: 10\ndata: \n\n", content_type="text/event-stream")
        elif request.http_method == "GET" and request.headers.get("last-event-id") == "1":
            await go_on.wait()
            answer = f'{{"jsonrpc": "2.0", "id": {asked[0].message["id"]}, "result": {{"content": []}}}}'
            await request.respond(200, f"id: 2\ndata: {answer}\n\n", content_type="text/event-stream")
        else:
            return False
        return True

    async with misbehaving("http", misbehave, modern=modern) as (app, _, client):
        request_id, answer = client.begin("tools/call", {"name": "r:echo"})
        await until(lambda: counts(app).taken_over == {"polling": 1})
        if not modern:
            await client.ended(request_id)  # type: ignore[attr-defined]
            assert not answer.done()
        go_on.set()
        if modern:
            assert (await answer)["result"]["content"] == []


@FRONTS
async def test_many_calls_at_once_each_get_their_answer(front: str) -> None:
    async with talk(front, modern=False) as (app, _, client):
        begun = [client.begin("tools/call", {"name": "r:echo", "arguments": {"x": x}})[1] for x in range(40)]
        answers = [text_of((await answer)["result"])["arguments"] for answer in begun]
        assert answers == [{"x": x} for x in range(40)]
        assert counts(app).answered + sum(counts(app).declined.values()) == 40
        assert not counts(app).taken_over
