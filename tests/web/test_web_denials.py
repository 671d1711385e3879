"""Whoever is refused is in the audit log: without credentials, without the right, or asking for what is not theirs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from fastmcp.server.auth import StaticTokenVerifier
from mcp.shared.exceptions import MCPError
from support.harness import config, connected, lean, until
from support.memory import build_aggregator
from support.serving import browser, served
from test_web_http import GROUPS

from fastmcp_aggregator.auth.claims import claim_of

TOKENS: dict[str, dict[str, Any]] = {
    "all": {"client_id": "all", "scopes": ["mcp"], **claim_of("all", None)},
    "guest": {"client_id": "guest", "scopes": ["mcp"], **claim_of("guest", ["web"])},
    "bare": {"client_id": "bare", "scopes": [], **claim_of("bare", None)},
}

VARYING = {"time", "id", "outcome", "duration_ms", "request_bytes", "response_bytes", "request_id", "error_code"}


class Log:
    """An audit log that is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def refusal(self) -> dict[str, Any]:
        """The first entry that is no call, when it has come."""
        entries = await until(lambda: [e for e in self._entries() if e["event"] != "call"])
        (entry,) = entries
        assert entry["outcome"] == "denied"
        assert entry["id"]
        return {key: value for key, value in entry.items() if key not in VARYING}

    def _entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


@asynccontextmanager
async def hub(folder: Path, **headers: str) -> AsyncIterator[tuple[httpx2.AsyncClient, Log]]:
    """A client of a hub that asks for credentials, and its audit log."""
    log = Log(folder / "audit.jsonl")
    app = build_aggregator(
        config(fetch=lean(), files=lean()),
        groups=GROUPS,
        audit=str(log.path),
        auth=StaticTokenVerifier(TOKENS, required_scopes=["mcp"]),
    )
    async with browser(app, **headers) as http:
        yield http, log


@pytest.mark.parametrize("path", ["/mcp", "/mcp/tools/list", "/groups/web/mcp", "/mcp/messages", "/mcp/sse", "/status"])
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "there are no credentials"),
        ({"authorization": "Bearer unknown"}, "the credentials are not valid"),
        ({"authorization": "Bearer bare"}, "the credentials are not valid"),
    ],
)
async def test_failed_authentication(path: str, headers: dict[str, str], reason: str, tmp_path: Path) -> None:
    async with hub(tmp_path, **headers) as (http, log):
        method = "GET" if path in ("/status", "/mcp/sse") else "POST"
        assert (await http.request(method, path)).status_code == 401
        failure = {
            "event": "authentication_failed",
            "principal": "anonymous",
            "client": "127.0.0.1",
            "path": path,
        }
        assert await log.refusal() == {**failure, "reason": reason}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/tools/list", "/groups/both/mcp", "/groups/both/mcp/messages"])
async def test_a_group_that_the_caller_may_not_use(path: str, tmp_path: Path) -> None:
    async with hub(tmp_path, authorization="Bearer guest") as (http, log):
        assert (await http.post(path)).status_code == 404
        group = "both" if "both" in path else "default"
        denied = {"event": "denied", "principal": "guest", "group": group, "path": path}
        assert await log.refusal() == {**denied, "reason": "the caller may not use the group"}


@pytest.mark.parametrize(
    ("method", "params", "field", "name"),
    [
        ("tools/call", {"name": "files:pid"}, "tool", "files:pid"),
        ("prompts/get", {"name": "files:ask"}, "prompt", "files:ask"),
        ("resources/read", {"uri": "demo://files/x"}, "uri", "demo://files/x"),
        ("skills/get", {"uri": "demo://files/x"}, "uri", "demo://files/x"),
        ("resources/directory/read", {"uri": "demo://files/"}, "uri", "demo://files/"),
        ("skills/list", {"cursor": "WyJmaWxlcyIsbnVsbF0="}, "uri", "skill://files"),
    ],
)
async def test_a_name_that_is_not_in_the_group(
    method: str, params: dict[str, Any], field: str, name: str, tmp_path: Path
) -> None:
    async with hub(tmp_path, authorization="Bearer guest") as (http, log):
        assert (await http.post(f"/groups/web/mcp/{method}", json=params)).status_code == 400
        denied = {"event": "denied", "principal": "guest", "group": "web", "method": method, field: name}
        assert await log.refusal() == {**denied, "reason": "there is nothing of this name in the group"}


async def test_it_is_the_same_on_stdio_and_for_mcp_clients(tmp_path: Path) -> None:
    log = Log(tmp_path / "audit.jsonl")
    app = build_aggregator(config(fetch=lean(), files=lean()), groups=GROUPS, audit=str(log.path))
    async with app, connected(app.group("web")) as client:
        await client.error("tools/call", {"name": "files:pid"})
        assert (await log.refusal())["principal"] == "anonymous"


async def test_a_typing_error_where_everything_is_open_is_no_denial(tmp_path: Path) -> None:
    log = Log(tmp_path / "audit.jsonl")
    app = build_aggregator(config(fetch=lean()), audit=str(log.path))
    async with app, Client(app) as client:
        with pytest.raises(MCPError):
            await client.call_tool("fetch:no", {})
        await client.call_tool("fetch:pid", {})
    assert {entry["event"] for entry in log._entries()} == {"call"}


async def test_the_session_of_somebody_else(tmp_path: Path) -> None:
    log = Log(tmp_path / "audit.jsonl")
    app = build_aggregator(config(a=lean()), audit=str(log.path), auth=StaticTokenVerifier(TOKENS))
    async with served(app) as front, front.browser() as http:
        client = await front.connect_sse(headers={"authorization": "Bearer all"})
        await http.post(client.endpoint, json={}, headers={"authorization": "Bearer bare"})
        denied = {"event": "denied", "principal": "bare", "group": "default", "path": "/mcp/messages"}
        assert await log.refusal() == {**denied, "reason": "the session belongs to another caller"}
