"""What children say and ask, when FastMCP serves their components: with middleware, or mounted in another app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from support.harness import RawClient, config, connected, talking
from support.memory import build_aggregator
from support.wire import EVERYTHING, META, Message

pytestmark = pytest.mark.asyncio(loop_scope="session")

LOG = {"level": "info", "logger": "x", "data": {"deep": [None]}}
CLIENT_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
HOW = pytest.mark.parametrize("how", ["middleware", "mounted"])
SERVERS = pytest.mark.parametrize("server", ["old", "new"], ids=["legacy child", "modern child"])


@asynccontextmanager
async def served_by_fastmcp(how: str, *, modern: bool) -> AsyncIterator[tuple[RawClient, str]]:
    """A client that can be asked, and what stands before the names of the children."""
    app = build_aggregator(config(old=talking(), new=talking(era="modern")))
    outer: FastMCP[Any] = app
    if how == "middleware":
        app.add_middleware(Middleware())
    else:
        outer = FastMCP("outer")
        outer.mount(app, namespace="hub")
    prefix = "hub_" if how == "mounted" else ""
    async with app, connected(outer, modern=modern, capabilities=EVERYTHING) as client:
        client.on_question = lambda method, params: {
            "result": {"action": "accept", "content": {"x": params["message"]}}
        }
        yield client, prefix


def asking(message: str) -> Message:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def accepting(x: str) -> Message:
    return {"action": "accept", "content": {"x": x}}


def meta(modern: bool) -> Message:
    return {"progressToken": "t", **({f"{META}logLevel": "debug"} if modern else {})}


@HOW
@CLIENT_ERAS
@SERVERS
async def test_progress_and_log_messages_reach_the_caller(how: str, modern: bool, server: str) -> None:
    async with served_by_fastmcp(how, modern=modern) as (client, prefix):
        script = [{"progress": [1, 2, "one"]}, {"say": "notifications/message", "params": LOG}, {"progress": [2]}]
        await client.play(f"{prefix}{server}", *script, **meta(modern))
        assert [message["params"] for message in client.notifications] == [
            {"progressToken": "t", "progress": 1, "total": 2, "message": "one"},
            LOG,
            {"progressToken": "t", "progress": 2},
        ]


@HOW
@CLIENT_ERAS
@SERVERS
async def test_the_caller_is_asked_as_often_as_the_child_wants(how: str, modern: bool, server: str) -> None:
    async with served_by_fastmcp(how, modern=modern) as (client, prefix):
        brought = await client.play(f"{prefix}{server}", *({"ask": {"a": asking(f"What? {i}")}} for i in range(3)))
        assert brought == [{"a": accepting(f"What? {i}")} for i in range(3)]
        assert len(client.questions) == 3
