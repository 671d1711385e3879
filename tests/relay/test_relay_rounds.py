"""A legacy child's questions to a modern client: the child's call is held open over the rounds of the client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from support.doubles import call
from support.harness import PATIENCE, RawClient, config, connected, talking, timed, until
from support.memory import QUICK, build_aggregator
from support.serving import served
from support.talking_server import talking_server
from support.wire import EVERYTHING, Message
from support.wire_http import HttpClient
from ways import Way, cancel, ways

import fastmcp_aggregator
from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.session.in_flight import AskedTooLate
from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS, Timings
from fastmcp_aggregator.protocol.methods import PROGRESS
from fastmcp_aggregator.relay.pending_calls import PendingCall

pytestmark = pytest.mark.asyncio(loop_scope="session")

BRIDGED = ways(lambda way: way.is_bridged)
ROOTS = {"method": "roots/list"}
ASK = {"ask": {"a": ROOTS}}
IMPATIENT = replace(QUICK, pending_timeout=0.05)
OVER = {"code": -32602, "message": "requestState: the call that it continues is over; call again without it"}


def play(server: str, *script: Message) -> Message:
    """The parameters of a call of the child's tool `play`."""
    return {"name": f"{server}:play", "arguments": {"script": script}}


def with_answers(params: Message, round_: Message, answer: Message | None = None) -> Message:
    """The request of the next round, with the same answer to all questions."""
    answers = dict.fromkeys(round_["inputRequests"], answer or {"roots": []})
    return {**params, "requestState": round_["requestState"], "inputResponses": answers}


def brought(result: Message) -> Any:
    return json.loads(result["content"][0]["text"])


async def ended(client: RawClient, server: str) -> None:
    """Wait until the child has no call open."""
    await client.report(server, lambda report: not report["playing"])


# The state.


@BRIDGED
async def test_a_request_state_is_new_in_each_round_and_cannot_be_guessed(way: Way, client: RawClient) -> None:
    params = play(way.server, *[ASK] * 3)
    states, result = [], await client.result("tools/call", params)
    while result["resultType"] == "input_required":
        states.append(result["requestState"])
        result = await client.result("tools/call", with_answers(params, result))
    assert len(set(states)) == 3
    assert min(map(len, states)) > 32
    assert result["resultType"] == "complete"


@BRIDGED
@pytest.mark.parametrize("state", ["held-unknown", "of another server", "", 7, {"x": 1}])
async def test_a_state_that_is_not_known_is_refused_and_the_child_not_called(
    way: Way, client: RawClient, state: Any
) -> None:
    before = await client.report(way.server)
    params = {**play(way.server, {"later": [{"say": "notifications/x"}]}), "requestState": state}
    assert (await client.error("tools/call", params))["code"] == -32602
    assert await client.report(way.server) == before


@BRIDGED
async def test_a_state_is_good_for_one_round(way: Way, client: RawClient) -> None:
    params = play(way.server, ASK, ASK)
    first = await client.result("tools/call", params)
    second = await client.result("tools/call", with_answers(params, first))
    assert await client.error("tools/call", with_answers(params, first)) == OVER
    last = await client.result("tools/call", with_answers(params, second))
    assert await client.error("tools/call", with_answers(params, second)) == OVER
    assert brought(last) == [{"a": {"roots": []}}] * 2


OTHER_SERVER = {"old:play": "old-http:play", "old-http:play": "old:play"}
OTHER_REQUESTS: dict[str, Callable[[Message], tuple[str, Message]]] = {
    "arguments": lambda params: ("tools/call", {**params, "arguments": {"script": []}}),
    "tool": lambda params: ("tools/call", {**params, "name": params["name"].replace("play", "report")}),
    "method": lambda params: ("prompts/get", params),
    "server": lambda params: (
        "tools/call",
        {**params, "name": "old-http:play" if "old:" in params["name"] else "old:play"},
    ),
}


@BRIDGED
@pytest.mark.parametrize("other", OTHER_REQUESTS.values(), ids=OTHER_REQUESTS)
async def test_a_state_is_good_for_the_request_that_it_was_given_for_alone(
    way: Way, client: RawClient, other: Any
) -> None:
    params = play(way.server, ASK)
    round_ = await client.result("tools/call", params)
    method, foreign = other(with_answers(params, round_))
    assert await client.error(method, foreign) == OVER
    result = await client.result("tools/call", with_answers(params, round_))
    assert brought(result) == [{"a": {"roots": []}}], "and nothing is lost"


async def test_a_state_is_good_for_the_principal_that_it_was_given_to_alone() -> None:
    auth = StaticTokenVerifier({name: {"client_id": name, "scopes": []} for name in ("alice", "mallory")})
    async with served(build_aggregator(config(a=talking()), auth=auth)) as front:
        alice, mallory = [
            await front.connect(modern=True, capabilities=EVERYTHING, headers={"Authorization": f"Bearer {name}"})
            for name in ("alice", "mallory")
        ]
        params = play("a", ASK)
        round_ = await alice.result("tools/call", params)
        assert await mallory.error("tools/call", with_answers(params, round_)) == OVER
        assert brought(await alice.result("tools/call", with_answers(params, round_))) == [{"a": {"roots": []}}]


async def test_a_client_that_does_not_come_back_in_time_ends_the_childs_call() -> None:
    async with served(timed(build_aggregator(config(a=talking())), IMPATIENT)) as front:
        client = await front.connect(modern=True, capabilities=EVERYTHING)
        params = play("a", ASK)
        round_ = await client.result("tools/call", params)
        await ended(client, "a")
        assert await client.error("tools/call", with_answers(params, round_)) == OVER


async def test_a_call_that_is_given_up_takes_no_question_of_another_with_it() -> None:
    """On a pipe nothing tells which of one client's calls asks, and the later one is taken for it."""
    async with (
        timed(build_aggregator(config(a=talking())), IMPATIENT) as app,
        connected(app, modern=True, capabilities=EVERYTHING) as client,
    ):
        params = play("a", {"wait": "gate"}, ASK)
        _, asks = client.begin("tools/call", params)
        _, given_up = client.begin("tools/call", play("a", {"wait": "never"}))
        await client.report("a", lambda report: sorted(report["waiting"]) == ["gate", "never"])
        await client.call("a:open", gate="gate")
        assert (await given_up)["result"]["inputRequests"], "and it is never answered"
        app._backend.runtime.rounds._pending.timeout = 600.0  # type: ignore[union-attr]
        round_ = (await asks)["result"]
        assert brought(await client.result("tools/call", with_answers(params, round_)))[-1] == {"a": {"roots": []}}


@pytest.mark.process
@ways(lambda way: way.is_bridged and way.front == "stdio")
async def test_a_call_that_is_cancelled_while_its_question_is_on_the_way_ends(way: Way, client: RawClient) -> None:
    """Its client has not seen the question, and will not come back with an answer."""
    request_id, response = client.begin("tools/call", play(way.server, ASK))
    await response
    client.notify("notifications/cancelled", {"requestId": request_id})
    await ended(client, way.server)


async def test_a_call_that_is_held_ends_when_its_client_leaves_a_pipe() -> None:
    async with talking_server() as server, build_aggregator(config(a=server.entry)) as app, connected(app) as other:
        async with connected(app, modern=True, capabilities=EVERYTHING) as client:
            await client.result("tools/call", play("a", ASK))
            assert (await other.report("a"))["playing"] == 1
        await ended(other, "a")


async def test_a_call_that_is_cancelled_too_late_takes_no_question_of_another_with_it() -> None:
    """As above, but the client says that it gives the call up, once the question is on its way."""
    async with (
        build_aggregator(config(a=talking())) as app,
        connected(app, modern=True, capabilities=EVERYTHING) as client,
    ):
        params = play("a", {"wait": "gate"}, ASK)
        _, asks = client.begin("tools/call", params)
        cancelled, given_up = client.begin("tools/call", play("a", {"wait": "never"}))
        await client.report("a", lambda report: sorted(report["waiting"]) == ["gate", "never"])
        await client.call("a:open", gate="gate")
        assert (await given_up)["result"]["inputRequests"]
        client.notify("notifications/cancelled", {"requestId": cancelled})
        round_ = (await asks)["result"]
        assert brought(await client.result("tools/call", with_answers(params, round_)))[-1] == {"a": {"roots": []}}


async def test_no_more_than_a_number_of_calls_is_held() -> None:
    timings = replace(QUICK, pending_calls=2)
    async with talking_server() as server, served(timed(build_aggregator(config(a=server.entry)), timings)) as front:
        client = await front.connect(modern=True, capabilities=EVERYTHING)
        params = play("a", ASK)
        rounds = [await client.result("tools/call", params) for _ in range(2)]
        error = await client.error("tools/call", params)
        assert error == {"code": -32603, "message": "too many calls wait for their clients' answers already; try again"}
        await client.report("a", lambda report: report["playing"] == 2)
        await client.result("tools/call", with_answers(params, rounds[0]))
        await client.result("tools/call", params)


@asynccontextmanager
async def two_principals(
    timings: Timings = DEFAULT_TIMINGS, **settings: Any
) -> AsyncIterator[tuple[Aggregator, HttpClient, HttpClient]]:
    """An app in front of a remote server, of whose requests it is known whom they are for, and two clients."""
    auth = StaticTokenVerifier({name: {"client_id": name, "scopes": []} for name in ("alice", "bob")})
    async with talking_server() as server:
        app = timed(build_aggregator(config(a=server.entry), auth=auth, **settings), timings)
        async with served(app) as front:
            alice, bob = [
                await front.connect(modern=True, capabilities=EVERYTHING, headers={"Authorization": f"Bearer {name}"})
                for name in ("alice", "bob")
            ]
            yield app, alice, bob


async def test_who_leaves_all_calls_unanswered_leaves_places_to_others() -> None:
    params = play("a", ASK)
    async with two_principals(replace(DEFAULT_TIMINGS, pending_calls=4)) as (_, alice, bob):
        rounds = [await alice.result("tools/call", params) for _ in range(4)]
        assert "too many calls wait" in (await alice.error("tools/call", params))["message"]
        round_ = await bob.result("tools/call", params)
        assert brought(await bob.result("tools/call", with_answers(params, round_))) == [{"a": {"roots": []}}]
        await alice.result("tools/call", with_answers(params, rounds[0]))
        assert (await alice.result("tools/call", params))["requestState"], "and what is over has no place any more"


@pytest.mark.parametrize("most", [2, 5])
async def test_calls_that_wait_for_one_principal_leave_a_turn_at_the_server_to_others(most: int) -> None:
    params = play("a", ASK)
    async with two_principals(max_concurrent_calls=most) as (app, alice, bob):
        rounds = [await alice.result("tools/call", params) for _ in range(most - 1)]
        late = asyncio.create_task(alice.result("tools/call", params))
        await until(lambda: app.health()["a"].waiting == 1)
        assert await bob.result("tools/call", play("a"))
        assert not late.done()
        await alice.result("tools/call", with_answers(params, rounds[0]))
        assert (await late)["requestState"]


async def test_a_call_that_nobody_answers_leaves_the_only_turn_to_who_waits_for_it() -> None:
    params = play("a", ASK)
    async with two_principals(Timings(asking_bound=0.05), max_concurrent_calls=1) as (app, alice, bob):
        round_ = await alice.result("tools/call", params)
        assert await bob.result("tools/call", play("a"))
        error = await alice.error("tools/call", with_answers(params, round_))
        assert "its client did not answer a question, and calls of others wait" in error["message"]
        assert app.health()["a"].unanswered == 0


async def test_a_call_whose_client_answers_while_others_wait_goes_on() -> None:
    params = play("a", ASK, ASK)
    async with two_principals(max_concurrent_calls=1) as (app, alice, bob):
        round_ = await alice.result("tools/call", params)
        waiting = asyncio.create_task(bob.result("tools/call", play("a")))
        await until(lambda: app.health()["a"].waiting == 1)
        round_ = await alice.result("tools/call", with_answers(params, round_))
        answers = [{"a": {"roots": []}}] * 2
        assert brought(await alice.result("tools/call", with_answers(params, round_))) == answers
        await waiting


async def test_a_call_of_the_same_caller_does_not_hurry_it() -> None:
    params = play("a", ASK)
    async with two_principals(Timings(asking_bound=0.0), max_concurrent_calls=1) as (app, alice, _):
        round_ = await alice.result("tools/call", params)
        waiting = asyncio.create_task(alice.result("tools/call", play("a")))
        await until(lambda: app.health()["a"].waiting == 1)
        assert brought(await alice.result("tools/call", with_answers(params, round_))) == [{"a": {"roots": []}}]
        await waiting


# The answers.


@BRIDGED
async def test_what_is_not_answered_is_asked_again(way: Way, client: RawClient) -> None:
    params = play(way.server, {"ask": {name: {**ROOTS, "params": {"x": name}} for name in ("one", "two", "three")}})
    round_ = await client.result("tools/call", params)
    asked = round_["inputRequests"]
    for name in list(asked):
        answers = {name: {"of": asked[name]["params"]["x"]}, "input-of-another": {"x": 1}}
        request = {**params, "requestState": round_["requestState"], "inputResponses": answers}
        round_ = await client.result("tools/call", request)
        del asked[name]
        assert round_.get("inputRequests", {}) == asked
    assert brought(round_) == [{name: {"of": name} for name in ("one", "two", "three")}]


@BRIDGED
@pytest.mark.parametrize("answer", [None, [], "x", 1])
async def test_an_answer_that_is_no_object_is_none(way: Way, client: RawClient, answer: Any) -> None:
    params = play(way.server, ASK)
    first = await client.result("tools/call", params)
    (name,) = first["inputRequests"]
    odd = {**params, "requestState": first["requestState"], "inputResponses": {name: answer}}
    second = await client.result("tools/call", odd)
    assert second["inputRequests"] == first["inputRequests"]
    assert brought(await client.result("tools/call", with_answers(params, second))) == [{"a": {"roots": []}}]


@BRIDGED
@pytest.mark.parametrize("answers", [[], "x", 1])
async def test_answers_that_are_no_object_are_refused_and_the_call_goes_on(
    way: Way, client: RawClient, answers: Any
) -> None:
    params = play(way.server, ASK)
    round_ = await client.result("tools/call", params)
    odd = {**params, "requestState": round_["requestState"], "inputResponses": answers}
    assert (await client.error("tools/call", odd))["code"] == -32602
    assert brought(await client.result("tools/call", with_answers(params, round_))) == [{"a": {"roots": []}}]


@BRIDGED
async def test_no_answers_at_all_ask_everything_again(way: Way, client: RawClient) -> None:
    params = play(way.server, ASK)
    first = await client.result("tools/call", params)
    second = await client.result("tools/call", {**params, "requestState": first["requestState"]})
    assert second["inputRequests"] == first["inputRequests"]
    assert brought(await client.result("tools/call", with_answers(params, second))) == [{"a": {"roots": []}}]


@BRIDGED
async def test_progress_comes_under_the_token_of_the_round(way: Way, client: RawClient) -> None:
    params = play(way.server, {"progress": [1]}, ASK, {"progress": [2]})
    round_ = await client.result("tools/call", {**params, "_meta": {"progressToken": "first"}})
    await client.result("tools/call", {**with_answers(params, round_), "_meta": {"progressToken": "second"}})
    said = [(m["params"]["progressToken"], m["params"]["progress"]) for m in client.notifications]
    assert said == [("first", 1), ("second", 2)]


async def test_the_last_progress_between_two_rounds_is_told_in_the_next() -> None:
    async def work(caller: PendingCall) -> Message:
        for number in range(1, 21):
            asyncio.get_running_loop().call_soon(caller.notify, PROGRESS.name, {"progress": number})
        asyncio.get_running_loop().call_soon(caller.notify, PROGRESS.name, {"progress": 21, "message": "x" * 5000})
        asyncio.get_running_loop().call_soon(caller.notify, "notifications/message", {"data": "x"})
        return {"answer": await caller.ask("roots/list", {}, _ignored)}

    caller = call().caller
    caller.__dict__.update(identity="i", account=None, holder="h", wants_progress=True, capabilities=EVERYTHING)
    caller.notify = None
    told: list[Any] = []
    pending = PendingCall(caller, work)
    assert await pending.round() is None
    pending.resume(lambda method, params: told.append((method, dict(params))), {"input-1": {"roots": []}})
    assert await pending.round() == {"answer": {"roots": []}}
    assert told == [(PROGRESS.name, {"progress": number}) for number in range(5, 21)]


async def test_a_question_over_a_call_that_was_just_ended_is_refused_and_not_kept_waiting() -> None:
    """The child may ask before the task of the call has taken note."""

    async def work(caller: PendingCall) -> Message:
        await asyncio.Event().wait()
        return {}

    caller = call().caller
    caller.__dict__.update(identity="i", account=None, holder="h", wants_progress=True, capabilities=EVERYTHING)
    caller.notify = None
    pending = PendingCall(caller, work)
    pending.end()
    with pytest.raises(AskedTooLate):
        await asyncio.wait_for(pending.ask("roots/list", {}, _ignored), PATIENCE)


async def _ignored(progress: float, total: float | None, message: str | None) -> None: ...


# The end.


@BRIDGED
async def test_a_client_that_leaves_during_the_first_round_ends_the_childs_call(way: Way, client: RawClient) -> None:
    request_id, _ = client.begin("tools/call", play(way.server, {"wait": f"first {way}"}))
    await client.report(way.server, lambda report: f"first {way}" in report["waiting"])
    cancel(client, request_id)
    await ended(client, way.server)


@BRIDGED
async def test_a_client_that_leaves_during_a_later_round_ends_the_childs_call(way: Way, client: RawClient) -> None:
    params = play(way.server, ASK, {"wait": f"later {way}"})
    round_ = await client.result("tools/call", params)
    request_id, _ = client.begin("tools/call", with_answers(params, round_))
    await client.report(way.server, lambda report: f"later {way}" in report["waiting"])
    cancel(client, request_id)
    await ended(client, way.server)


@BRIDGED
async def test_a_call_whose_child_fails_between_two_rounds_is_answered_with_the_childs_error(
    way: Way, client: RawClient
) -> None:
    error = {"code": -31999, "message": "mine", "data": [None]}
    params = play(way.server, ASK, {"fail": error})
    round_ = await client.result("tools/call", params)
    assert await client.error("tools/call", with_answers(params, round_)) == error


@pytest.mark.process
async def test_a_child_that_dies_between_two_rounds_is_named_in_the_next() -> None:
    app = fastmcp_aggregator.build_aggregator(config(a=talking()))
    async with app, connected(app, modern=True, capabilities=EVERYTHING) as client:
        pid = (await client.call("a:pid"))["pid"]
        params = play("a", ASK)
        round_ = await client.result("tools/call", params)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: app.health()["a"].restarts)
        error = await client.error("tools/call", with_answers(params, round_))
        message = "server 'a': it was ended by signal SIGKILL while it was answering tools/call"
        assert (error["code"], error["message"]) == (-32000, message)
        assert await client.play("a") == []


async def test_calls_that_are_held_end_with_the_aggregator() -> None:
    async with talking_server() as server:
        async with served(build_aggregator(config(a=server.entry))) as front:
            client = await front.connect(modern=True, capabilities=EVERYTHING)
            await client.result("tools/call", play("a", ASK))
            assert server.child.report()["playing"] == 1
        await until(lambda: server.child.report()["playing"] == 0)
