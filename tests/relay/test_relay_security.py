"""Nothing ever reaches a caller that it does not belong to, and nothing that belongs to one for certain is lost.

Many callers of both eras call children of both eras and transports at the same time. Each call has a nonce, which its
child puts into its progress, its log message, its question and its result, and the client into its answer. Some calls
are cancelled half-way. `RELAY_CALLS` is the number of calls; the nox session `relay` makes 10 000.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from support.harness import config, talking, until
from support.memory import build_aggregator
from support.serving import served
from support.talking_server import talking_server
from support.wire import EVERYTHING, META, Message
from support.wire_http import HttpClient

CALLS = int(os.environ.get("RELAY_CALLS", "80"))
CALLERS = 10
"""Of each era."""
AT_ONCE = 2
"""Calls of each caller."""
CANCELLED = 0.05
"""Part of the calls that their callers cancel."""
_NONCE = re.compile(r"nonce-[\w-]+")
_ISOLATED = "own-legacy"
"""The key of a server of which each session has an instance."""
_LOG = "notifications/message"
_PROGRESS = "notifications/progress"


def nonces_in(message: Any) -> set[str]:
    return set(_NONCE.findall(json.dumps(message)))


def script(nonce: str) -> list[Message]:
    """What the child does in one call."""
    question = {"message": f"for {nonce}", "requestedSchema": {"type": "object", "properties": {}}}
    return [
        {"progress": [1, 3, nonce]},
        {"say": _LOG, "params": {"level": "info", "logger": nonce, "data": {"nonce": nonce}}},
        {"progress": [2, 3, nonce]},
        {"ask": {"q": {"method": "elicitation/create", "params": question}}},
        {"progress": [3, 3, nonce]},
    ]


@dataclass
class Caller:
    """A client that checks, for each of its requests, whose messages come on the request's stream."""

    client: HttpClient
    name: str
    figures: Counter[str]
    nonces: dict[Any, str] = field(default_factory=dict)
    """By request id; a modern client's call takes several requests."""
    servers: dict[str, str] = field(default_factory=dict)
    """By nonce: which server was called."""

    def __post_init__(self) -> None:
        self.client.on_question = self.answer
        self._write = self.client.write
        self.client.write = self.write  # type: ignore[method-assign]

    def write(self, message: Message) -> None:
        if "method" in message and "id" in message:
            (self.nonces[message["id"]],) = nonces_in(message)
        self._write(message)

    def answer(self, method: str, params: Message) -> Message:
        """The answer says whose question was answered, and by whom."""
        (nonce,) = nonces_in(params)
        return {"result": {"action": "accept", "content": {"of": nonce, "by": self.name}}}

    async def call(self, server: str, nonce: str, *, is_cancelled: bool) -> None:
        meta = {"progressToken": f"token of {nonce}", f"{META}logLevel": "debug"}
        params = {"name": f"{server}:play", "arguments": {"script": script(nonce)}, "_meta": meta}
        self.servers[nonce] = server
        if is_cancelled:
            await self.cancel(params)
            return
        before = len(self.client.messages)
        response = await self.client.converse("tools/call", params)
        assert "result" in response, response
        (answers,) = json.loads(response["result"]["content"][0]["text"])
        self.check_answer(server, nonce, answers["q"])
        self.check_told(server, nonce, [m for m in self.client.messages[before:] if nonces_in(m) == {nonce}])
        self.figures["calls"] += 1

    def check_answer(self, server: str, nonce: str, answer: Message) -> None:
        if "error" in answer:
            assert answer["error"]["code"] == -32600, answer
            assert server.startswith(("pipe-legacy", "pipe-both")), "only there can it be unclear whom to ask"
            self.figures["questions refused"] += 1
        else:
            assert answer["content"] == {"of": nonce, "by": self.name}
            self.figures["questions answered"] += 1

    def check_told(self, server: str, nonce: str, own: list[Message]) -> None:
        every = [m["params"] for m in own if m.get("method") == _PROGRESS]
        progress = [each for each in every if each["progress"] > 0]  # before that: that its instance is starting
        assert all("starting" in each["message"] and server == _ISOLATED for each in every[: -len(progress)])
        assert progress == [
            {"progressToken": f"token of {nonce}", "progress": step, "total": 3, "message": nonce} for step in (1, 2, 3)
        ]
        logs = sum(m.get("method") == _LOG for m in own)
        assert logs == 1 or (server.startswith("pipe") and logs == 0), "elsewhere it is clear whose it is"
        self.figures["progress"] += len(progress)
        self.figures["log messages"] += logs

    async def cancel(self, params: Message) -> None:
        """Begin a call, and cancel it once the first message of the child has come."""
        request_id, response = self.client.begin("tools/call", params)
        await until(lambda: self.client.streams[request_id] or response.done())
        if self.client.is_modern:
            self.client.hang_up(request_id)
        else:
            self.client.notify("notifications/cancelled", {"requestId": request_id})
        self.figures["calls cancelled"] += 1

    def check_streams(self) -> None:
        """What came on the stream of a request has the nonce of this request or none, and no nonce came elsewhere.

        Of several calls of one session on one pipe, a child's log messages and questions may come on any one's stream.
        """
        on_pipes = {nonce for nonce, server in self.servers.items() if not server.startswith("http")}
        for request_id, messages in self.client.streams.items():
            expected = set() if self.client.is_modern else set(on_pipes)
            if request_id in self.nonces:
                expected.add(self.nonces[request_id])
            foreign = nonces_in(messages) - expected
            assert not foreign, (self.name, request_id, foreign)
            self.figures["messages"] += len(messages)


async def test_nothing_ever_reaches_a_caller_that_it_does_not_belong_to_and_no_progress_is_lost() -> None:
    figures: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        children = {}
        for name, era in itertools.product(("0", "1"), ("legacy", "modern")):
            remote = await stack.enter_async_context(talking_server(era=era))
            children |= {f"pipe-{era}-{name}": talking(era=era), f"http-{era}-{name}": remote.entry}
        children |= {"pipe-both": talking(era="both"), _ISOLATED: talking()}
        app = build_aggregator(config(**children), servers={_ISOLATED: {"isolation": "session"}})
        front = await stack.enter_async_context(served(app))
        callers = [
            Caller(await front.connect(modern=era == "modern", capabilities=EVERYTHING), f"{era}-{number}", figures)
            for era, number in itertools.product(("legacy", "modern"), range(CALLERS))
        ]
        calls = iter(range(CALLS))
        chance = random.Random(CALLS)

        async def work(caller: Caller) -> None:
            for number in calls:
                figures["at once"] += 1
                figures["most at once"] = max(figures["most at once"], figures["at once"])
                nonce = f"nonce-{number}-of-{caller.name}"
                # Without authentication, a modern client would have an isolated server started for each request.
                server = chance.choice([key for key in children if key != _ISOLATED or not caller.client.is_modern])
                await caller.call(server, nonce, is_cancelled=chance.random() < CANCELLED)
                figures["at once"] -= 1

        await asyncio.gather(*(work(caller) for caller in callers for _ in range(AT_ONCE)))
        for caller in callers:
            caller.check_streams()
    print(dict(figures))
    assert figures["calls"] + figures["calls cancelled"] == CALLS
    assert figures["progress"] == 3 * figures["calls"]
    assert figures["most at once"] == 2 * CALLERS * AT_ONCE
    assert figures["questions answered"] > 0.5 * figures["calls"]
