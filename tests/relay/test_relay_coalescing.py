"""List changes that follow each other closely, by a clock that jumps: they are told together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.harness import config, connected, talking, until
from support.memory import scripted
from support.virtual_time import VirtualTimePolicy

from fastmcp_aggregator import build_aggregator

KINDS = ["tools", "resources", "prompts"]


@pytest.fixture
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


async def test_changes_in_quick_succession_are_told_together() -> None:
    app = build_aggregator(config(a=talking()))
    scripts = scripted(app)
    async with app, connected(app) as client:
        await until(lambda: app.children["a"].is_serving)
        await asyncio.sleep(10)
        child: Any = scripts["a"].life.child
        client.forget()
        child.play_outside(*[{"changed": kind} for kind in KINDS] * 10)
        await asyncio.sleep(10)
        told = [message["method"].split("/")[1] for message in client.notifications]
        assert sorted(told) == ["prompts", "resources", "tools"]
        child.play_outside({"changed": "tools"})
        await asyncio.sleep(10)
        assert len(client.notifications) == 4
        assert client.notifications[-1]["method"] == "notifications/tools/list_changed"
