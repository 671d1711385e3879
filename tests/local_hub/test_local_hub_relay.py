"""Nothing ever reaches a client of a hub that it does not belong to: many clients behind bridges call at once.

As in `relay/test_relay_security.py`, each call has a nonce, which its child puts into its progress, its log message,
its question and its result, and the client into its answer. `RELAY_CALLS` is the number of calls.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from relay.test_relay_security import nonces_in, script
from support.harness import config, running, talking, until
from support.talking_server import talking_server
from support.wire import EVERYTHING, META, Message, RawClient

pytestmark = pytest.mark.process

CALLS = int(os.environ.get("RELAY_CALLS", "200"))
CALLERS = 5
"""Of each era."""
AT_ONCE = 2
"""Calls of each caller."""
CANCELLED = 0.05
_PROGRESS = "notifications/progress"


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hub-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("FASTMCP_AGGREGATOR_HUB_IDLE", "0.2")
    yield folder
    shutil.rmtree(folder)


class Caller:
    """A client that checks that all that it hears is its own."""

    def __init__(self, client: RawClient, name: str, figures: Counter[str]) -> None:
        self.client = client
        self.name = name
        self.figures = figures
        client.on_question = self.answer

    def answer(self, method: str, params: Message) -> Message:
        (nonce,) = nonces_in(params)
        return {"result": {"action": "accept", "content": {"of": nonce, "by": self.name}}}

    async def call(self, server: str, nonce: str, *, is_cancelled: bool) -> None:
        began = len(self.client.messages)
        meta = {"progressToken": f"token of {nonce}", f"{META}logLevel": "debug"}
        params = {"name": f"{server}:play", "arguments": {"script": script(nonce)}, "_meta": meta}
        if is_cancelled:
            request_id, response = self.client.begin("tools/call", params)
            await until(lambda: response.done() or any(nonces_in(m) == {nonce} for m in self.client.messages[-50:]))
            if response.done() and response.result().get("result", {}).get("resultType") == "input_required":
                # Too late. Whoever leaves it unanswered leaves the question of another call unanswered, where it is
                # that one's: on a pipe to a legacy server nothing tells which of a client's calls asks.
                await self.client.converse("tools/call", {**params, **self.client.answers(response.result()["result"])})
            self.client.notify("notifications/cancelled", {"requestId": request_id})
            self.figures["calls cancelled"] += 1
            return
        response_to_call = await self.client.converse("tools/call", params)
        assert "result" in response_to_call, response_to_call
        (answers,) = json.loads(response_to_call["result"]["content"][0]["text"])
        if "error" in answers["q"]:
            assert server.startswith("pipe"), "only there can it be unclear whom to ask"
            self.figures["questions refused"] += 1
        else:
            assert answers["q"]["content"] == {"of": nonce, "by": self.name}
            self.figures["questions answered"] += 1
        since = self.client.messages[began:]
        own = [m["params"] for m in since if m.get("method") == _PROGRESS and nonces_in(m) == {nonce}]
        assert [params["progress"] for params in own] == [1, 2, 3]
        self.figures["calls"] += 1

    def check(self) -> None:
        """All nonces that came are this caller's."""
        for message in self.client.messages:
            assert all(nonce.endswith(f"-of-{self.name}") for nonce in nonces_in(message)), (self.name, message)
        self.figures["messages"] += len(self.client.messages)


async def test_nothing_reaches_a_client_of_a_hub_that_it_does_not_belong_to(tmp_path: Path, runtime: Path) -> None:
    figures: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        children: dict[str, Any] = {}
        for name, era in itertools.product(("0", "1"), ("legacy", "modern")):
            remote = await stack.enter_async_context(talking_server(era=era))
            children |= {f"pipe-{era}-{name}": talking(era=era), f"http-{era}-{name}": remote.entry}
        children |= {"pipe-both": talking(era="both"), "own-legacy": talking()}
        path, settings = tmp_path / "mcp.json", tmp_path / "settings.toml"
        path.write_text(json.dumps(config(**children)))
        settings.write_text('[servers.own-legacy]\nisolation = "session"\n')
        command = [sys.executable, "-P", "-m", "fastmcp_aggregator", "attach", str(path), "--settings", str(settings)]
        callers = []
        for era, number in itertools.product(("legacy", "modern"), range(CALLERS)):
            name = f"{era}-{number}"
            bridge = running(*command, modern=era == "modern", name=name, capabilities=EVERYTHING)
            callers.append(Caller((await stack.enter_async_context(bridge)).client, name, figures))
        calls = iter(range(CALLS))
        chance = random.Random(CALLS)

        async def work(caller: Caller) -> None:
            for number in calls:
                nonce = f"nonce-{number}-of-{caller.name}"
                server = chance.choice(list(children))
                await caller.call(server, nonce, is_cancelled=chance.random() < CANCELLED)

        await asyncio.gather(*(work(caller) for caller in callers for _ in range(AT_ONCE)))
        for caller in callers:
            caller.check()
        assert len(list(runtime.rglob("*.lock"))) == 1
    print(dict(figures))
    await until(lambda: not list(runtime.rglob("*.lock")))
    assert figures["calls"] + figures["calls cancelled"] == CALLS
    assert figures["questions answered"] > 0.3 * figures["calls"]
