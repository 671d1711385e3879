"""Several callers at once on one child: what it says and asks reaches the caller that it belongs to, or nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.harness import RawClient, config, talking, until
from support.memory import build_aggregator
from support.serving import served
from support.talking_server import talking_server
from support.wire import EVERYTHING, META, Message
from support.wire_http import HttpClient

pytestmark = pytest.mark.asyncio(loop_scope="session")

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy clients", "modern clients"])
PAIRS = {"legacy clients": (False, False), "one of each era": (False, True), "modern clients": (True, True)}
MIXED = pytest.mark.parametrize("eras", PAIRS.values(), ids=PAIRS)
ROOTS = {"method": "roots/list", "params": {}}
LOG = "notifications/message"


def log(data: Any) -> Message:
    return {"say": LOG, "params": {"level": "info", "data": data}}


def begin(client: RawClient, *script: Message) -> asyncio.Future[Message]:
    """Begin a call of the child's tool `play`, that wants all its log messages and its progress."""
    meta = {"progressToken": "t", **({f"{META}logLevel": "debug"} if client.is_modern else {})}
    params = {"name": "a:play", "arguments": {"script": script}, "_meta": meta}
    return asyncio.ensure_future(client.converse("tools/call", params))


def cancel(client: HttpClient, request_id: int) -> None:
    """Cancel a request, in the way of the client's era."""
    if client.is_modern:
        client.hang_up(request_id)
    else:
        client.notify("notifications/cancelled", {"requestId": request_id})


def answering(client: HttpClient, name: str) -> HttpClient:
    """A client that answers every question with its name."""
    client.on_question = lambda method, params: {"result": {"roots": [], "by": name}}
    return client


def logs_heard(client: RawClient) -> list[Any]:
    return [message["params"]["data"] for message in client.notifications if message["method"] == LOG]


@asynccontextmanager
async def two_callers(entry: Message, eras: tuple[bool, bool]) -> AsyncIterator[tuple[HttpClient, HttpClient]]:
    async with served(build_aggregator(config(a=entry))) as front:
        alice, bob = [await front.connect(modern=modern, capabilities=EVERYTHING) for modern in eras]
        yield answering(alice, "alice"), answering(bob, "bob")


def brought(response: Message) -> Any:
    assert "result" in response, response
    return json.loads(response["result"]["content"][0]["text"])


# A child on stdio: nothing that it says carries the call that it belongs to.


@MIXED
async def test_with_two_callers_in_flight_on_one_pipe_a_question_is_refused_and_says_what_to_do(
    eras: tuple[bool, bool],
) -> None:
    async with two_callers(talking(), eras) as (alice, bob):
        waiting = begin(bob, {"wait": "gate"})
        await alice.report("a", lambda report: report["waiting"] == ["gate"])
        (answers,) = brought(await begin(alice, {"ask": {"x": ROOTS}}))
        error = answers["x"]["error"]
        assert error["code"] == -32600
        assert error["message"].startswith("roots/list: cannot tell which client to ask")
        assert 'with isolation = "session" in the aggregator\'s settings' in error["message"]
        await alice.call("a:open", gate="gate")
        await waiting
        assert alice.questions == bob.questions == []


@MIXED
async def test_with_two_callers_in_flight_on_one_pipe_log_messages_are_for_nobody_and_progress_for_its_caller(
    eras: tuple[bool, bool],
) -> None:
    async with two_callers(talking(), eras) as (alice, bob):
        waiting = begin(bob, log("bob's, alone"), {"progress": [1]}, {"wait": "gate"}, {"progress": [2]})
        await until(lambda: logs_heard(bob))
        await alice.report("a", lambda report: report["waiting"] == ["gate"])
        await begin(alice, log("whose?"), {"progress": [3]})
        await alice.call("a:open", gate="gate")
        await waiting
        assert logs_heard(alice) == []
        assert logs_heard(bob) == ["bob's, alone"]
        assert [m["params"]["progress"] for m in bob.notifications if "progress" in m["params"]] == [1, 2]
        assert [m["params"]["progress"] for m in alice.notifications if "progress" in m["params"]] == [3]


async def test_the_only_caller_is_asked_however_many_of_its_calls_are_in_flight() -> None:
    async with two_callers(talking(), (False, False)) as (alice, _):
        waiting = begin(alice, {"wait": "gate"})
        await alice.report("a", lambda report: report["waiting"] == ["gate"])
        assert brought(await begin(alice, log("hers"), {"ask": {"x": ROOTS}})) == [{"x": {"roots": [], "by": "alice"}}]
        assert logs_heard(alice) == ["hers"]
        await alice.call("a:open", gate="gate")
        await waiting


async def test_two_requests_of_one_modern_client_over_http_are_of_two_callers() -> None:
    """Nothing ties them together: they may be of two users behind one program."""
    async with two_callers(talking(), (True, True)) as (alice, _):
        waiting = begin(alice, {"wait": "gate"})
        await alice.report("a", lambda report: report["waiting"] == ["gate"])
        (answers,) = brought(await begin(alice, log("whose?"), {"ask": {"x": ROOTS}}))
        assert answers["x"]["error"]["code"] == -32600
        assert logs_heard(alice) == []
        await alice.call("a:open", gate="gate")
        await waiting


# A child over HTTP: what it says on the response stream of a request belongs to that request.


@MIXED
async def test_over_http_everybody_is_told_and_asked_what_is_theirs_with_many_calls_in_flight(
    eras: tuple[bool, bool],
) -> None:
    async with talking_server() as server, two_callers(server.entry, eras) as callers:
        names = ("alice", "bob")
        calls = [
            begin(client, {"wait": "gate"}, log(name), {"ask": {"x": ROOTS}}, {"progress": [number]}, log(name))
            for number in range(5)
            for client, name in zip(callers, names, strict=True)
        ]
        await until(lambda: len(server.waiting("gate")) == len(calls))
        await callers[0].call("a:open", gate="gate")
        by = [brought(response)[1]["x"]["by"] for response in await asyncio.gather(*calls)]
        assert by == [*names] * 5
        for client, name in zip(callers, names, strict=True):
            assert logs_heard(client) == [name] * 10
            assert len(client.questions) == 5


@ERAS
async def test_what_comes_on_the_stream_of_a_request_that_is_cancelled_is_for_nobody_else(modern: bool) -> None:
    async with talking_server() as server, two_callers(server.entry, (False, modern)) as (alice, bob):
        request_id, _ = alice.begin("tools/call", {"name": "a:play", "arguments": {"script": [{"wait": "of alice"}]}})
        (play,) = await until(lambda: server.waiting("of alice"))
        bobs = begin(bob, {"wait": "of bob"}, log("bob's"))
        await until(lambda: server.waiting("of bob"))
        alice.notify("notifications/cancelled", {"requestId": request_id})
        await until(lambda: not server.waiting("of alice"))
        play.out({"jsonrpc": "2.0", "method": LOG, "params": {"level": "info", "data": "alice's secret"}})
        play.out({"jsonrpc": "2.0", "id": "late", "method": "roots/list", "params": {"secret": "alice's"}})
        await bob.call("a:open", gate="of bob")
        await bobs
        assert logs_heard(bob) == ["bob's"]
        assert bob.questions == alice.questions == []
        assert logs_heard(alice) == []


@ERAS
async def test_of_calls_that_were_cancelled_no_connection_to_the_child_is_left(modern: bool) -> None:
    """A legacy child need not end the response stream of a call that it does not answer any more."""
    async with talking_server() as server, two_callers(server.entry, (modern, modern)) as (alice, _):
        await alice.report("a")
        before = len(server.streams)
        calls = [
            alice.begin("tools/call", {"name": "a:play", "arguments": {"script": [{"wait": "gate"}]}})[0]
            for _ in range(5)
        ]
        await until(lambda: len(server.waiting("gate")) == 5)
        for call in calls:
            cancel(alice, call)
        await until(lambda: not server.waiting("gate"))
        await until(lambda: len(server.streams) == before)
        assert brought(await begin(alice, {"ask": {"x": ROOTS}})) == [{"x": {"roots": [], "by": "alice"}}]


@ERAS
async def test_what_comes_on_the_sessions_own_stream_while_two_callers_are_in_flight_is_for_nobody(
    modern: bool,
) -> None:
    async with talking_server() as server, two_callers(server.entry, (modern, modern)) as callers:
        calls = [begin(client, {"wait": "gate"}) for client in callers]
        await until(lambda: len(server.waiting("gate")) == 2)
        server.child.play_outside(log("whose?"), {"ask": {"x": ROOTS}})
        (answers,) = await until(lambda: server.child.answers_outside)
        assert answers["x"]["error"]["code"] == -32600
        await callers[0].call("a:open", gate="gate")
        await asyncio.gather(*calls)
        assert all(client.questions == logs_heard(client) == [] for client in callers)


@MIXED
async def test_a_modern_child_over_http_tells_everybody_what_is_theirs(eras: tuple[bool, bool]) -> None:
    async with talking_server(era="modern") as server, two_callers(server.entry, eras) as callers:
        calls = [begin(client, {"wait": "gate"}, log(name)) for client, name in zip(callers, "ab", strict=True)]
        await until(lambda: len(server.waiting("gate")) == 2)
        await callers[0].call("a:open", gate="gate")
        await asyncio.gather(*calls)
        assert [logs_heard(client) for client in callers] == [["a"], ["b"]]
