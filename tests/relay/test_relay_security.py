"""Nothing ever reaches a caller that it does not belong to, and nothing that belongs to one for certain is lost.

Many callers of both eras call children of both eras and transports at the same time. Each call has a nonce, which its
child puts into its progress, its log message, its question and its result, and the client into its answer. Some calls
are cancelled half-way. `RELAY_CALLS` is the number of calls; the nox session `relay` makes 10 000.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from support.harness import config, talking, until
from support.memory import build_aggregator
from support.nonces import LOG, PROGRESS, NonceCaller, nonces_in
from support.serving import served
from support.talking_server import talking_server
from support.wire import EVERYTHING, Message
from support.wire_http import HttpClient

CALLS = int(os.environ.get("RELAY_CALLS", "80"))
CALLERS = 10
"""Of each era."""
AT_ONCE = 2
"""Calls of each caller."""
CANCELLED = 0.05
"""Part of the calls that their callers cancel."""
_ISOLATED = "own-legacy"
"""The key of a server of which each session has an instance."""


@dataclass
class Caller(NonceCaller):
    """A client that checks, for each of its requests, whose messages come on the request's stream."""

    client: HttpClient
    nonces: dict[Any, str] = field(default_factory=dict)
    """By request id; a modern client's call takes several requests."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._write = self.client.write
        self.client.write = self.write  # type: ignore[method-assign]

    def write(self, message: Message) -> None:
        if "method" in message and "id" in message:
            (self.nonces[message["id"]],) = nonces_in(message)
        self._write(message)

    def check_told(self, server: str, nonce: str, own: list[Message]) -> None:
        every = [m["params"] for m in own if m.get("method") == PROGRESS]
        progress = [each for each in every if each["progress"] > 0]  # before that: that its instance is starting
        assert all("starting" in each["message"] and server == _ISOLATED for each in every[: -len(progress)])
        assert progress == [
            {"progressToken": f"token of {nonce}", "progress": step, "total": 3, "message": nonce} for step in (1, 2, 3)
        ]
        logs = sum(m.get("method") == LOG for m in own)
        assert logs == 1 or (server.startswith("pipe") and logs == 0), "elsewhere it is clear whose it is"
        self.figures["progress"] += len(progress)
        self.figures["log messages"] += logs

    async def cancel(self, nonce: str, params: Message) -> None:
        request_id, response = self.client.begin("tools/call", params)
        await until(lambda: self.client.streams[request_id] or response.done())
        if self.client.is_modern:
            self.client.hang_up(request_id)
        else:
            self.client.notify("notifications/cancelled", {"requestId": request_id})

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
