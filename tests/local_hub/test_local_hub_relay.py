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
from support.harness import config, running, talking, until
from support.nonces import PROGRESS, NonceCaller, nonces_in
from support.talking_server import talking_server
from support.wire import EVERYTHING, Message

pytestmark = pytest.mark.process

CALLS = int(os.environ.get("RELAY_CALLS", "200"))
CALLERS = 5
"""Of each era."""
AT_ONCE = 2
"""Calls of each caller."""
CANCELLED = 0.05


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hub-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("FASTMCP_AGGREGATOR_HUB_IDLE", "0.2")
    yield folder
    shutil.rmtree(folder)


class Caller(NonceCaller):
    """A client that checks that all that it hears is its own."""

    async def cancel(self, nonce: str, params: Message) -> None:
        request_id, response = self.client.begin("tools/call", params)
        await until(lambda: response.done() or any(nonces_in(m) == {nonce} for m in self.client.messages[-50:]))
        if response.done() and response.result().get("result", {}).get("resultType") == "input_required":
            # Too late. Whoever leaves it unanswered leaves the question of another call unanswered, where it is
            # that one's: on a pipe to a legacy server nothing tells which of a client's calls asks.
            await self.client.converse("tools/call", {**params, **self.client.answers(response.result()["result"])})
        self.client.notify("notifications/cancelled", {"requestId": request_id})

    def check_told(self, server: str, nonce: str, own: list[Message]) -> None:
        progress = [message["params"]["progress"] for message in own if message.get("method") == PROGRESS]
        assert [number for number in progress if number > 0] == [1, 2, 3]  # below it tells of a start that takes long

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
