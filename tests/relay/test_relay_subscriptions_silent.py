"""A server that never agrees to a subscription: only what concerns it fails, by the deadline of a read."""

from __future__ import annotations

import pytest
from support.harness import config, connected, talking, until
from support.memory import build_aggregator, scripted

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SILENT = [f"note://silent//{name}" for name in "abc"]


@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
async def test_a_server_that_does_not_agree_to_a_subscription_keeps_no_other_waiting(modern: bool) -> None:
    app = build_aggregator(config(silent=talking(era="modern"), good=talking(era="modern")), read_timeout=0.2)
    scripts = scripted(app)
    async with app, connected(app, modern=modern) as client:
        for key in ("silent", "good"):
            await client.call(f"{key}:report")
        child = scripts["silent"].life.child
        asked: list[str] = []
        child.answer = lambda _, method, __: asked.append(method)
        if modern:
            wanted = [*SILENT, "note://good//a"]
            client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": wanted}})
            agreed = (await client.heard(ACKNOWLEDGED))["params"]["notifications"]
            assert agreed == {"resourceSubscriptions": ["note://good//a"]}
        else:
            error = await client.error("resources/subscribe", {"uri": SILENT[0]})
            assert "it did not acknowledge the subscription within 0.2 s" in error["message"]
            assert await client.result("resources/subscribe", {"uri": "note://good//a"}) == {}
        assert asked.count("subscriptions/listen") == 1
        await until(lambda: "notifications/cancelled" in [method for method, _ in child.notifications])
