"""A call's deadline rests while the child waits for its client, and runs again after the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.harness import RawClient, config, connected, talking
from support.memory import build_aggregator
from support.wire import EVERYTHING, Message

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENT_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
ROOTS = {"method": "roots/list"}
TOO_LATE = "server 'a': it did not answer tools/call within 0.5 s"


@asynccontextmanager
async def impatient(*, modern: bool) -> AsyncIterator[RawClient]:
    """A client of a talking child that has little time for each call."""
    app = build_aggregator(config(a=talking()), call_timeout=0.5)
    async with app, connected(app, modern=modern, capabilities=EVERYTHING) as client:
        yield client


async def deadline_passed(client: RawClient) -> None:
    """A call that began now has been given up: so would be one that began earlier."""
    assert (await client.error("tools/call", {"name": "a:hold", "arguments": {}}))["message"] == TOO_LATE


def play(*script: Message) -> Message:
    return {"name": "a:play", "arguments": {"script": script}}


async def ask_and_answer_late(client: RawClient, *script: Message) -> Message:
    """Play a script that begins with a question, which is answered after the deadline; the response."""
    params: Any = play({"ask": {"a": ROOTS}}, *script)
    if client.is_modern:
        round_ = await client.result("tools/call", params)
        await deadline_passed(client)
        client.on_question = lambda method, params: {"result": {"roots": []}}
        return await client.send("tools/call", {**params, **client.answers(round_)})
    _, response = client.begin("tools/call", params)
    question = await client.question("roots/list")
    await deadline_passed(client)
    client.write({"id": question["id"], "result": {"roots": []}})
    return await asyncio.wait_for(response, 30)


@CLIENT_ERAS
async def test_a_client_may_take_longer_for_its_answer_than_the_child_for_the_call(modern: bool) -> None:
    async with impatient(modern=modern) as client:
        response = await ask_and_answer_late(client)
        assert json.loads(response["result"]["content"][0]["text"]) == [{"a": {"roots": []}}]


@CLIENT_ERAS
async def test_after_the_answer_the_deadline_runs_again(modern: bool) -> None:
    async with impatient(modern=modern) as client:
        response = await ask_and_answer_late(client, {"wait": "for ever"})
        assert response["error"]["message"] == TOO_LATE


async def test_while_one_of_two_questions_is_open_the_deadline_rests() -> None:
    async with impatient(modern=False) as client:
        _, response = client.begin("tools/call", play({"ask": {"a": ROOTS, "b": ROOTS}}))
        one, other = await client.question("roots/list"), await client.question("roots/list")
        client.write({"id": one["id"], "result": {"roots": []}})
        await deadline_passed(client)
        client.write({"id": other["id"], "result": {"roots": []}})
        assert "result" in await asyncio.wait_for(response, 30)
