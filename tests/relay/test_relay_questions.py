"""What a child asks while it works on a request: it reaches the caller of that request, and the answer the child."""

from __future__ import annotations

import json
import os
import signal
from typing import Any
from urllib.parse import quote

import pytest
from support.harness import RawClient, config, until
from support.serving import served
from support.talking_server import talking_server
from support.wire import EVERYTHING, Message
from ways import EVERY_WAY, Way, ways

from fastmcp_aggregator import build_aggregator

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCHEMA = {"type": "object", "properties": {"x": {"type": "string", "x-unknown": 1}}, "required": ["x"]}
IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png", "x-unknown": 1}
QUESTIONS: dict[str, tuple[Message, Message]] = {
    "sampling": (
        {
            "method": "sampling/createMessage",
            "params": {
                "messages": [{"role": "user", "content": IMAGE}],
                "maxTokens": 10,
                "modelPreferences": {"hints": [{"name": "m"}], "costPriority": 0.5},
                "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
                "toolChoice": {"mode": "auto"},
                "x-unknown": [None],
            },
        },
        {"role": "assistant", "model": "m", "content": {"type": "text", "text": "é", "x-unknown": 1}},
    ),
    "elicitation by form": (
        {"method": "elicitation/create", "params": {"message": "What?", "requestedSchema": SCHEMA}},
        {"action": "accept", "content": {"x": "y", "n": 1, "b": True}, "x-unknown": {"deep": None}},
    ),
    "elicitation by URL": (
        {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Go", "url": "https://example.org/", "elicitationId": "1"},
        },
        {"action": "decline"},
    ),
    "roots": ({"method": "roots/list"}, {"roots": [{"uri": "file:///x", "name": "x", "_meta": {"own": 1}}]}),
}
EVERY_QUESTION = pytest.mark.parametrize(("question", "answer"), QUESTIONS.values(), ids=QUESTIONS)
ROOTS = {"method": "roots/list"}


def asked(client: RawClient) -> list[Message]:
    """What the client has been asked, without what the transport adds."""
    return [{key: question[key] for key in ("method", "params") if question.get(key)} for question in client.questions]


@EVERY_WAY
@EVERY_QUESTION
async def test_a_question_and_its_answer_come_as_they_were_sent(
    way: Way, client: RawClient, question: Message, answer: Message
) -> None:
    client.on_question = lambda method, params: {"result": answer}
    assert await client.play(way.server, {"ask": {"a": question}}) == [{"a": answer}]
    assert asked(client) == [question]


REQUESTS = {
    "prompts/get": lambda key, script: {"name": f"{key}:play", "arguments": {"script": script}},
    "resources/read": lambda key, script: {"uri": f"talk://{key}/play/{quote(script)}"},
}


@EVERY_WAY
@pytest.mark.parametrize("method", REQUESTS)
async def test_a_child_may_ask_over_prompts_and_resources_too(way: Way, client: RawClient, method: str) -> None:
    client.on_question = lambda method, params: {"result": {"roots": []}}
    script = json.dumps([{"ask": {"a": ROOTS}}])
    result = (await client.converse(method, REQUESTS[method](way.server, script)))["result"]
    content = result["messages"][0]["content"] if method == "prompts/get" else result["contents"][0]
    assert json.loads(content["text"]) == [{"a": {"roots": []}}]


@EVERY_WAY
async def test_two_questions_at_once_are_asked_at_once_and_each_gets_its_answer(way: Way, client: RawClient) -> None:
    """A legacy client is asked the second before it has answered the first; a modern one both in one round."""
    client.on_question = lambda method, params: {"result": {"roots": [], "of": params["x"]}} if way.is_modern else None
    script = {"ask": {name: {**ROOTS, "params": {"x": name}} for name in ("one", "two")}}
    params = {"name": f"{way.server}:play", "arguments": {"script": [script]}}
    if way.is_modern:
        first = await client.result("tools/call", params)
        assert len(first["inputRequests"]) == 2
        response = await client.send("tools/call", {**params, **client.answers(first)})
    else:
        _, coming = client.begin("tools/call", params)
        questions = [await client.question("roots/list"), await client.question("roots/list")]
        for question in reversed(questions):
            client.write({"id": question["id"], "result": {"roots": [], "of": question["params"]["x"]}})
        response = await coming
    (brought,) = json.loads(response["result"]["content"][0]["text"])
    assert brought == {name: {"roots": [], "of": name} for name in ("one", "two")}


@EVERY_WAY
async def test_questions_one_after_the_other_are_all_answered_and_what_is_said_between_keeps_its_place(
    way: Way, client: RawClient
) -> None:
    client.on_question = lambda method, params: {"result": {"answer": params["x"]}}
    script: list[Message] = []
    for number in range(5):
        script += [{"progress": [number]}, {"ask": {"a": {**ROOTS, "params": {"x": number}}}}]
    brought = await client.play(way.server, *script, progressToken="t")
    assert brought == [{"a": {"answer": number}} for number in range(5)]
    said = [(m.get("params") or {}).get("progress", "other") for m in client.messages]
    assert [progress for progress in said if progress != "other"] == list(range(5))
    assert said[0] == 0, "before the first question"


# When the client does not answer with a result.


@ways(lambda way: not way.is_modern and not way.child_is_modern)
async def test_a_clients_error_is_the_answer_of_a_legacy_child(way: Way, client: RawClient) -> None:
    error = {"code": -1, "message": "User rejected it", "data": {"why": [None]}}
    client.on_question = lambda method, params: {"error": error}
    assert await client.play(way.server, {"ask": {"a": ROOTS}}) == [{"a": {"error": error}}]


@ways(lambda way: not way.is_modern and way.child_is_modern)
async def test_a_clients_error_ends_the_request_over_which_a_modern_child_asks(way: Way, client: RawClient) -> None:
    """A modern child's question is part of a result: there is no way to answer it with an error."""
    error = {"code": -1, "message": "User rejected it"}
    client.on_question = lambda method, params: {"error": error}
    script = [{"ask": {"a": ROOTS, "b": ROOTS}}]
    response = await client.send("tools/call", {"name": f"{way.server}:play", "arguments": {"script": script}})
    assert response["error"] == error


@ways(lambda way: not way.is_modern and not way.child_is_modern)
async def test_a_clients_progress_on_a_question_reaches_the_child_under_the_childs_token(
    way: Way, client: RawClient
) -> None:
    question = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    with_token = {**question, "params": {**question["params"], "_meta": {"progressToken": "own", "more": 1}}}
    _, response = client.begin("tools/call", play(way, {"ask": {"a": with_token}}))
    came = await client.question("sampling/createMessage")
    token = came["params"]["_meta"]["progressToken"]
    assert came["params"] == {**question["params"], "_meta": {"more": 1, "progressToken": token}}
    progress = {"progress": 1, "total": 2, "message": "half"}
    client.notify("notifications/progress", {"progressToken": token, **progress})
    told = ["notifications/progress", {"progressToken": "own", **progress}]
    await client.report(way.server, lambda report: told in report["notifications"])
    client.write({"id": came["id"], "result": {}})
    await response


@ways(lambda way: not way.is_modern and not way.child_is_modern)
async def test_a_question_that_the_child_withdraws_is_withdrawn_from_the_client(way: Way, client: RawClient) -> None:
    """Here, because the client cancels the request over which it is asked."""
    request_id, _ = client.begin("tools/call", play(way, {"ask": {"a": ROOTS}}))
    question = await client.question("roots/list")
    client.notify("notifications/cancelled", {"requestId": request_id})
    if way.front == "stdio":
        assert (await client.heard("notifications/cancelled"))["params"]["requestId"] == question["id"]
    await client.report(way.server, lambda report: not report["playing"])


def play(way: Way, *script: Message) -> Message:
    """The parameters of a call of the child's tool `play`."""
    return {"name": f"{way.server}:play", "arguments": {"script": script}}


@ways(lambda way: not way.child_is_modern)
async def test_that_an_elicitation_is_complete_is_told_to_a_legacy_caller(way: Way, client: RawClient) -> None:
    """A modern client has no such notification (2026-07-28)."""
    method, params = "notifications/elicitation/complete", {"elicitationId": "1", "x-unknown": None}
    await client.play(way.server, {"say": method, "params": params})
    told = [(message["method"], message["params"]) for message in client.notifications]
    assert told == ([] if way.is_modern else [(method, params)])


# What only modern children do.


@ways(lambda way: way.is_modern and way.child_is_modern)
async def test_a_modern_childs_questions_pass_to_a_modern_client_as_they_are(way: Way, client: RawClient) -> None:
    questions = {"a": QUESTIONS["sampling"][0], "b": QUESTIONS["elicitation by URL"][0]}
    result = await client.result("tools/call", play(way, {"ask": questions}))
    assert result["inputRequests"] == questions
    assert json.loads(result["requestState"]) == [0, [], {}], "the child's own"


@ways(lambda way: way.child_is_modern)
async def test_a_modern_child_may_want_to_be_asked_again_without_a_question(way: Way, client: RawClient) -> None:
    client.on_question = lambda method, params: {"result": {"roots": []}}
    brought = await client.play(way.server, {"again": True}, {"ask": {"a": ROOTS}}, {"again": True})
    assert brought == ["again", {"a": {"roots": []}}, "again"]
    assert len(client.questions) == 1


@ways(lambda way: not way.is_modern and way.child_is_modern)
async def test_a_modern_child_that_asks_without_end_is_given_up_for_a_legacy_client(
    way: Way, client: RawClient
) -> None:
    client.on_question = lambda method, params: {"result": {"roots": []}}
    response = await client.send("tools/call", play(way, *[{"ask": {"a": ROOTS}}] * 11))
    assert response["error"]["code"] == -32603
    assert response["error"]["message"] == f"server {way.server!r} asked for input 10 times over one request"
    assert len(client.questions) == 10


@ways(lambda way: not way.is_modern and way.child_is_modern)
async def test_a_modern_child_asks_a_legacy_client_few_things_at_once(way: Way, client: RawClient) -> None:
    client.on_question = lambda method, params: {"result": {"roots": []}}
    many = {str(number): ROOTS for number in range(20)}
    assert len((await client.play(way.server, {"ask": many}))[0]) == 20
    client.forget()
    response = await client.send("tools/call", play(way, {"ask": {**many, "one more": ROOTS}}))
    assert (response["error"]["code"], client.questions) == (-32603, [])
    assert response["error"]["message"] == "the server asked 21 things at once, of which a client is asked 20 at most"


@ways(lambda way: not way.is_modern and way.child_is_modern)
@pytest.mark.parametrize("question", [{"method": "tasks/list"}, {"method": "ping"}, {}, None, "roots/list"])
async def test_what_no_client_can_be_asked_is_not_asked(way: Way, client: RawClient, question: Any) -> None:
    result = {"resultType": "input_required", "inputRequests": {"a": question}}
    error = await client.error("tools/call", {"name": f"{way.server}:raw", "arguments": result})
    assert error["code"] == -32603
    assert error["message"].startswith("the server sent a request that no client can answer")
    assert client.questions == []


# Outside of any request.


@pytest.mark.process
async def test_what_a_child_asks_between_requests_is_for_the_only_client_on_stdio(fronts: Any) -> None:
    client: RawClient = fronts.on_stdio(modern=False)
    client.forget()
    client.on_question = lambda method, params: {"result": {"roots": [], "x": "late"}}
    await client.play("old", {"later": [{"ask": {"late": ROOTS}}]})
    os.kill((await client.call("old:pid"))["pid"], signal.SIGUSR1)
    await client.question("roots/list")
    await client.report("old", lambda report: {"late": {"roots": [], "x": "late"}} in report["answers"])


async def test_what_a_child_asks_between_requests_is_refused_where_there_may_be_many_clients() -> None:
    async with talking_server() as server, served(build_aggregator(config(a=server.entry))) as front:
        clients = [
            await front.connect(capabilities=EVERYTHING),
            await front.connect(modern=True, capabilities=EVERYTHING),
        ]
        for client in clients:
            await client.play("a")
        server.child.play_outside({"ask": {"late": ROOTS}})
        (answers,) = await until(lambda: server.child.answers_outside)
        assert answers["late"]["error"]["code"] == -32600
        assert 'isolation = "session"' in answers["late"]["error"]["message"]
        assert all(client.questions == [] for client in clients)


@pytest.mark.process
async def test_a_modern_only_client_on_stdio_cannot_be_asked_between_requests(fronts: Any) -> None:
    client: RawClient = fronts.on_stdio(modern=True)
    client.forget()
    await client.play("old", {"later": [{"ask": {"late": ROOTS}}]})
    os.kill((await client.call("old:pid"))["pid"], signal.SIGUSR1)
    # A report is a request, which could be asked: so there is none before the child has its answer.
    await fronts.processes[True].said("asked roots/list, and it cannot be determined for which client")
    report = await client.report("old", lambda report: report["answers"])
    assert report["answers"][0]["late"]["error"]["code"] == -32600
