"""Policies that raise what they should not: one call fails, and nothing of it is held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.harness import PATIENCE, RawClient, config, connected, lean, talking, until
from support.memory import Scripts, build_aggregator, scripted
from support.serving import served

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.policies.policy import Policy

pytestmark = [
    pytest.mark.parametrize("front", ["pipe", "http"]),
    pytest.mark.parametrize("modern", [False, True]),
    pytest.mark.parametrize("fast_path", [True, False]),
]
CANCELLED = "notifications/cancelled"
WAITING = {"name": "t:play", "arguments": {"script": [{"wait": "gate"}]}}


class Broken(Policy):
    """Raises in one of its steps."""

    def __init__(self, step: str) -> None:
        setattr(self, step, self._fail)

    def _fail(self, *_: Any) -> Any:
        raise RuntimeError("hunter2")


@asynccontextmanager
async def broken(
    step: str, front: str, *, modern: bool, fast_path: bool
) -> AsyncIterator[tuple[Aggregator, Scripts, RawClient]]:
    """An app whose policy breaks, and a client that has called it before."""
    app = build_aggregator(config(a=lean(), t=talking()), fast_path=fast_path)
    scripts = scripted(app)
    async with app:
        stack = app._backend.policies.stack
        if front == "pipe":
            async with connected(app, modern=modern) as client:
                await client.call("a:echo")
                stack.policies = (*stack.policies, Broken(step))
                yield app, scripts, client
        else:
            async with served(app) as at:
                client = await at.connect(modern=modern)
                await client.call("a:echo")
                stack.policies = (*stack.policies, Broken(step))
                yield app, scripts, client


async def is_quiet(app: Aggregator) -> None:
    await until(lambda: app._pipeline.in_flight._count == 0)
    for child in app._backend.runtime.children.values():  # type: ignore[union-attr]
        assert child.calls.in_flight == 0
        assert not child.session._requests._in_flight  # type: ignore[union-attr]
    assert not app._pipeline.fast_path._cancellable
    await until(lambda: app._backend.admission.counts() == (0, 0))


def cancel(client: RawClient, request_id: int) -> None:
    if client.is_modern and hasattr(client, "hang_up"):
        client.hang_up(request_id)
    else:
        client.notify(CANCELLED, {"requestId": request_id})


async def test_a_call_that_is_cancelled(front: str, modern: bool, fast_path: bool) -> None:
    async with broken("after", front, modern=modern, fast_path=fast_path) as (app, scripts, client):
        ids = [client.begin("tools/call", WAITING)[0] for _ in range(3)]
        await until(lambda: app.health()["t"].in_flight == 3)
        for request_id in ids:
            cancel(client, request_id)
        received = scripts["t"].life.received
        await until(lambda: len([m for m in received if m.get("method") == CANCELLED]) == 3)
        await is_quiet(app)
        assert (await client.error("tools/call", {"name": "a:echo"}))["message"].startswith("Internal error (id ")


async def test_calls_whose_client_leaves(front: str, modern: bool, fast_path: bool) -> None:
    async with broken("after", front, modern=modern, fast_path=fast_path) as (app, scripts, client):
        for _ in range(3):
            client.begin("tools/call", WAITING)
        await until(lambda: app.health()["t"].in_flight == 3)
        received = scripts["t"].life.received
        if front == "http":
            await client.close()
            await until(lambda: len([m for m in received if m.get("method") == CANCELLED]) == 3)
            await is_quiet(app)
    await until(lambda: len([m for m in received if m.get("method") == CANCELLED]) == 3)
    assert app._pipeline.in_flight._count == 0


async def test_a_call_that_is_to_be_let_in(front: str, modern: bool, fast_path: bool) -> None:
    async with broken("before", front, modern=modern, fast_path=fast_path) as (app, _, client):
        for _ in range(2):
            error = await asyncio.wait_for(client.error("tools/call", {"name": "a:echo"}), PATIENCE)
            assert error["message"].startswith("Internal error (id ")
            await is_quiet(app)


async def test_a_call_that_a_policy_may_have_to_wait_for(front: str, modern: bool, fast_path: bool) -> None:
    async with broken("is_ready_for", front, modern=modern, fast_path=fast_path) as (app, _, client):
        await client.call("a:echo")
        await is_quiet(app)


async def test_numbers_of_any_size(front: str, modern: bool, fast_path: bool) -> None:
    async with broken("nothing", front, modern=modern, fast_path=fast_path) as (app, _, client):
        answer = await client.call("a:echo", n=10**30)
        assert answer["arguments"] == {"n": 10**30}
        await is_quiet(app)
