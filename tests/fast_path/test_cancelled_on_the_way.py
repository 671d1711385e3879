"""Calls that are cancelled while they pass from one path to the other."""

from __future__ import annotations

import pytest
from support.harness import config, connected, talking, until
from support.memory import build_aggregator, scripted

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.front.fast_path import pipe

CANCELLED = "notifications/cancelled"
GATE = {"name": "a:play", "arguments": {"script": [{"wait": "gate"}]}}


async def is_quiet(app: Aggregator) -> None:
    await until(lambda: app._pipeline.in_flight._count == 0)
    assert {server.in_flight for server in app.health().values()} == {0}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("first", ["cancelled", "taken over"])
async def test_a_client_that_cancels_while_its_call_is_taken_over_ends_it(
    first: str, modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancellation and the line that is read again stand in the reader's queue, in either order."""
    app = build_aggregator(config(a=talking()))
    scripts = scripted(app)
    fronts: list[pipe.PipeFront] = []
    attach = pipe.PipeFront.attach
    monkeypatch.setattr(pipe.PipeFront, "attach", lambda self, to: (fronts.append(self), attach(self, to))[1])
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        request_id, _ = client.begin("tools/call", GATE)
        await until(lambda: app.health()["a"].in_flight == 1)
        (fast,) = fronts[0].calls.values()
        steps = [lambda: client.notify(CANCELLED, {"requestId": request_id}), lambda: fast.take_over("takes long")]
        for step in steps if first == "cancelled" else reversed(steps):
            step()
        await until(lambda: any(message.get("method") == CANCELLED for message in scripts["a"].life.received))
        await is_quiet(app)
        await until(lambda: not fronts[0]._taken_over)
        played = [m for m in scripts["a"].life.received if m.get("params", {}).get("name") == "play"]
        assert len(played) == 1
        await client.call("a:echo")
        assert not [m for m in client.messages if m.get("id") == request_id]
