"""MCP Apps (SEP-1865): declared to both sides, and pages that have an address that can be read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.harness import config, connected, lean
from support.memory import build_aggregator, scripted
from support.wire import META, Message, RawClient, text_of

UI = "io.modelcontextprotocol/ui"
TAKES = {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
PAGE = {"ui": {"resourceUri": "ui://clock/app.html", "visibility": ["app"]}, "ui/resourceUri": "ui://clock/app.html"}
OURS = {
    "ui": {"resourceUri": "ui://a/clock/app.html", "visibility": ["app"]},
    "ui/resourceUri": "ui://a/clock/app.html",
}
EVERY_ERA = [
    pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"]),
    pytest.mark.parametrize("era", ["legacy", "modern"]),
]
pytestmark = EVERY_ERA


@asynccontextmanager
async def client_of(modern: bool, era: str) -> AsyncIterator[tuple[RawClient, Any]]:
    declared = {"tools": {}, "resources": {}, "extensions": {UI: {}}}
    entry = lean(era=era, capabilities=declared, tool_extra={"_meta": PAGE})
    app = build_aggregator(config(a=entry))
    scripts = scripted(app)
    async with app, connected(app, modern=modern, capabilities=TAKES) as client:
        yield client, scripts


async def test_apps_are_declared_to_clients(modern: bool, era: str) -> None:
    async with client_of(modern, era) as (client, _):
        assert client.introduction["capabilities"]["extensions"] == {UI: {}}


async def test_the_page_of_a_tool_is_listed_and_read(modern: bool, era: str) -> None:
    async with client_of(modern, era) as (client, _):
        tool = (await client.result("tools/list"))["tools"][0]
        assert tool["_meta"] == OURS
        uri = tool["_meta"]["ui"]["resourceUri"]
        (part,) = (await client.result("resources/read", {"uri": uri}))["contents"]
        assert (part["uri"], part["text"]) == (uri, "lean reads ui://clock/app.html")


async def test_the_page_of_a_result_is_ours(modern: bool, era: str) -> None:
    async with client_of(modern, era) as (client, _):
        result: Message = {"content": [], "_meta": PAGE}
        told = await client.result("tools/call", {"name": "a:raw", "arguments": result})
        assert {key: told["_meta"][key] for key in OURS} == OURS


async def test_a_server_that_is_told_with_each_request_is_told_of_them(modern: bool, era: str) -> None:
    async with client_of(modern, era) as (client, _):
        meta = text_of(await client.result("tools/call", {"name": "a:params"})).get("_meta", {})
        told = meta.get(f"{META}clientCapabilities")
        assert told == (TAKES if era == "modern" else None)
