"""A hub over HTTP whose callers have keys, and its audit log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from fastmcp_aggregator import Aggregator
from support.credentials import Credentials
from support.harness import until
from support.memory import build_aggregator
from support.serving import Served, served
from support.wire import PATIENCE
from support.wire_http import HttpClient


@dataclass(frozen=True, slots=True)
class KeyedHub:
    """The hub, and what its callers do."""

    app: Aggregator
    front: Served
    credentials: Credentials
    log: Path
    http: httpx2.AsyncClient

    async def connect(self, who: str, **about: Any) -> HttpClient:
        """A client with the key of this name; in the group of this name, if there is one and no other is given."""
        group = about.pop("group", who if who in [each.id for each in self.app.groups()] else None)
        return await self.front.connect(group, headers=self.credentials.of(who), **about)

    async def ask(
        self, who: str | Mapping[str, str] | None, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx2.Response:
        """One request: with the key of this name, with these headers, or with neither."""
        own = self.credentials.of(who) if isinstance(who, str) else who or {}
        return await self.http.request(method, path, headers={**own, **headers}, json=body)

    async def call(self, who: str, group: str | None, tool: str, **arguments: Any) -> httpx2.Response:
        path = "/mcp" if group is None else f"/groups/{group}/mcp"
        return await self.ask(who, "POST", f"{path}/tools/call", {"name": tool, "arguments": arguments})

    async def audited(self, count: int = 0, event: str | None = None) -> list[dict[str, Any]]:
        """The audit log, or its lines of one event, once there are so many."""

        def found() -> list[dict[str, Any]]:
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            return [line for line in map(json.loads, lines) if event in (None, line["event"])]

        await until(lambda: len(found()) >= count)
        return found()


@asynccontextmanager
async def keyed_hub(
    folder: Path,
    credentials: Credentials,
    document: Any,
    *,
    build: Callable[..., Aggregator] = build_aggregator,
    **settings: Any,
) -> AsyncIterator[KeyedHub]:
    """Serve it, with its audit log in the folder, once its servers run."""
    log = folder / "audit.jsonl"
    app = build(document, auth=credentials.auth, **{"audit": str(log), **settings})
    async with (
        served(app) as front,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(front.asgi), base_url="http://localhost", timeout=PATIENCE
        ) as http,
    ):
        await until(lambda: all(status.state == "running" for status in app.health().values()))
        yield KeyedHub(app, front, credentials, log, http)
