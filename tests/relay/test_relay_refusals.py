"""Questions that cannot be put to a client: what the child, or the client, is told instead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.harness import RawClient, config, connected, talking
from support.memory import build_aggregator
from support.serving import served
from support.wire import EVERYTHING, Message
from support.wire_http import HttpClient

pytestmark = pytest.mark.asyncio(loop_scope="session")

SAMPLING: Message = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
WITH_TOOLS: Message = {**SAMPLING, "params": {**SAMPLING["params"], "tools": [], "toolChoice": {"mode": "none"}}}
FORM: Message = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
URL: Message = {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://e.org"}}
ROOTS: Message = {"method": "roots/list"}

REFUSED = {
    "nothing declared, sampling": ({}, SAMPLING, -32601, {"sampling": {}}),
    "nothing declared, elicitation": ({}, FORM, -32601, {"elicitation": {"form": {}}}),
    "nothing declared, roots": ({}, ROOTS, -32601, {"roots": {}}),
    "sampling without tools": ({"sampling": {}}, WITH_TOOLS, -32602, {"sampling": {"tools": {}}}),
    "forms but no URLs": ({"elicitation": {"form": {}}}, URL, -32602, {"elicitation": {"url": {}}}),
    "URLs but no forms": ({"elicitation": {"url": {}}}, FORM, -32602, {"elicitation": {"form": {}}}),
    "elicitation of before there were URLs": ({"elicitation": {}}, URL, -32602, {"elicitation": {"url": {}}}),
    "tasks do not count": ({"tasks": {}}, SAMPLING, -32601, {"sampling": {}}),
}
"""What the client declares, what the child asks, the code for a legacy child, what the client would have to declare."""
ASKED = {
    "elicitation of before there were URLs": ({"elicitation": {}}, FORM),
    "sampling": ({"sampling": {}}, SAMPLING),
    "sampling with tools": ({"sampling": {"tools": {}}}, WITH_TOOLS),
    "forms": ({"elicitation": {"form": {}}}, FORM),
    "URLs": ({"elicitation": {"url": {}}}, URL),
    "roots": ({"roots": {"listChanged": True}}, ROOTS),
}
EVERY_REFUSAL = pytest.mark.parametrize(("declared", "question", "code", "required"), REFUSED.values(), ids=REFUSED)
BOTH_FRONTS = pytest.mark.parametrize("is_http", [False, True], ids=["on a pipe", "over HTTP"])


@asynccontextmanager
async def front(*, is_http: bool, **about: Any) -> AsyncIterator[RawClient]:
    """The client of an app with a talking child of each era; `about` is about the client."""
    app = build_aggregator(config(old=talking(), new=talking(era="modern")))
    if is_http:
        async with served(app) as front:
            yield await front.connect(**about)
    else:
        async with app, connected(app, **about) as client:
            yield client


def play(server: str, question: Message) -> Message:
    return {"name": f"{server}:play", "arguments": {"script": [{"ask": {"a": question}}]}}


@BOTH_FRONTS
@EVERY_REFUSAL
async def test_a_legacy_child_gets_the_answer_that_a_legacy_client_without_the_capability_gives(
    is_http: bool, declared: Message, question: Message, code: int, required: Message
) -> None:
    async with front(is_http=is_http, capabilities=declared) as client:
        ((answer,),) = [list(answers.values()) for answers in await client.play("old", {"ask": {"a": question}})]
        assert answer["error"]["code"] == code
        assert answer["error"]["message"].startswith(f"{question['method']}: the client does not support ")
        assert client.questions == []


@BOTH_FRONTS
@EVERY_REFUSAL
async def test_modern_client_that_cannot_be_asked_is_told_what_it_would_have_to_declare(
    is_http: bool, declared: Message, question: Message, code: int, required: Message
) -> None:
    async with front(is_http=is_http, modern=True, capabilities=declared) as client:
        request_id, response = client.begin("tools/call", play("old", question))
        assert (await response)["error"] == {
            "code": -32021,
            "message": f"Missing required client capability: {next(iter(required))}",
            "data": {"requiredCapabilities": required},
        }
        if isinstance(client, HttpClient):
            assert client.statuses[request_id] == 400
        await client.report("old", lambda report: not report["playing"])


@BOTH_FRONTS
@EVERY_REFUSAL
async def test_a_modern_child_that_asks_a_legacy_client_what_it_cannot_answer_gets_its_request_refused(
    is_http: bool, declared: Message, question: Message, code: int, required: Message
) -> None:
    async with front(is_http=is_http, capabilities=declared) as client:
        assert (await client.error("tools/call", play("new", question)))["code"] == code
        assert client.questions == []


@BOTH_FRONTS
@pytest.mark.parametrize(("declared", "question"), ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
async def test_what_a_client_has_declared_it_is_asked(
    is_http: bool, modern: bool, declared: Message, question: Message
) -> None:
    async with front(is_http=is_http, modern=modern, capabilities=declared) as client:
        client.on_question = lambda method, params: {"result": {"x": 1}}
        for server in ("old", "new"):
            assert await client.play(server, {"ask": {"a": question}}) == [{"a": {"x": 1}}]


@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
@pytest.mark.parametrize("method", ["tasks/list", "ping/x", "resources/list", ""])
async def test_what_no_server_may_ask_is_not_passed_on(modern: bool, method: str) -> None:
    async with front(is_http=True, modern=modern, capabilities=EVERYTHING) as client:
        brought = await client.play("old", {"ask": {"a": {"method": method}}})
        assert brought == [{"a": {"error": {"code": -32601, "message": "Method not found", "data": method}}}]
        assert client.questions == []


@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
async def test_a_childs_ping_is_answered_by_the_aggregator(modern: bool) -> None:
    async with front(is_http=True, modern=modern) as client:
        assert await client.play("old", {"ask": {"a": {"method": "ping"}}}) == [{"a": {}}]
        assert client.questions == []
