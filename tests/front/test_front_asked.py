"""Requests over HTTP whose client is asked something meanwhile, and the answers, which come by other requests."""

from __future__ import annotations

import asyncio
from typing import Any

from support.harness import PATIENCE, RawClient, config, lean, talking, until
from support.memory import build_aggregator
from support.serving import served
from support.wire import EVERYTHING, Message

ROOTS = {"method": "roots/list"}


async def asked(client: RawClient) -> tuple[Message, asyncio.Future[Message]]:
    """A call over which the client is asked for its roots: the question, and the call's answer to come."""
    script: Any = [{"ask": {"a": ROOTS}}]
    _, answer = client.begin("tools/call", {"name": "asks:play", "arguments": {"script": script}})
    return await client.question("roots/list"), answer


def answer_question(client: RawClient, question: Message) -> None:
    client.write({"id": question["id"], "result": {"roots": []}})


async def test_others_are_served_while_a_client_thinks_about_a_question() -> None:
    app = build_aggregator(config(asks=talking(), a=lean()), max_concurrent_requests=1)
    async with served(app) as front:
        client, other = await front.connect(capabilities=EVERYTHING), await front.connect()
        question, answer = await asked(client)
        assert (await other.call("a:echo", x=1))["arguments"] == {"x": 1}
        answer_question(client, question)
        assert "result" in await asyncio.wait_for(answer, PATIENCE)


async def test_an_answer_comes_through_when_as_many_requests_run_as_may() -> None:
    app = build_aggregator(config(asks=talking(), a=lean()), max_concurrent_requests=1)
    async with served(app) as front:
        client, other = await front.connect(capabilities=EVERYTHING), await front.connect()
        question, answer = await asked(client)
        other.begin("tools/call", {"name": "a:hold"})
        await until(lambda: app.health()["a"].in_flight)
        answer_question(client, question)
        assert "result" in await asyncio.wait_for(answer, PATIENCE)


async def test_a_call_whose_client_is_asked_is_finished_when_the_server_is_to_end() -> None:
    app = build_aggregator(config(asks=talking(), a=lean()))
    async with served(app) as front:
        client, other = await front.connect(capabilities=EVERYTHING), await front.connect()
        question, answer = await asked(client)
        front.stop.set()
        request, _ = other.begin("tools/call", {"name": "a:echo"})
        await until(lambda: other.statuses.get(request) == 503)
        answer_question(client, question)
        assert "result" in await asyncio.wait_for(answer, PATIENCE)
