"""Two replicas of one hub in this process, and what they share of sessions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import Vault
from support.harness import config, lean, talking
from support.memory import build_aggregator
from support.serving import Served, served
from support.wire import LEGACY
from support.wire_http import HttpClient


class SharedMemory(Vault):
    """What replicas share, in this process."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], bytes] = {}
        self.is_away = False
        self.reads = 0
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.may_keep = asyncio.Event()
        self.may_keep.set()
        self.waiting = 0
        """How many are to be kept, and are not yet."""
        self._locks: dict[str, asyncio.Lock] = {}

    def _ask(self) -> None:
        if self.is_away:
            raise VaultError("away")

    async def read(self, kind: str, name: str) -> bytes | None:
        self._ask()
        self.reads += 1
        await self.may_read.wait()
        return self.documents.get((kind, name))

    async def keep(self, kind: str, name: str, document: bytes, *, lifetime: float | None = None) -> None:
        self._ask()
        assert lifetime is not None
        self.waiting += 1
        await self.may_keep.wait()
        self.waiting -= 1
        self.documents[kind, name] = document

    async def remove(self, kind: str, name: str) -> bool:
        self._ask()
        return self.documents.pop((kind, name), None) is not None

    async def all(self, kind: str) -> list[bytes]:
        return [document for (each, _), document in self.documents.items() if each == kind]

    @asynccontextmanager
    async def locked(self, kind: str, name: str) -> AsyncIterator[None]:  # type: ignore[override]
        self._ask()
        async with self._locks.setdefault(name, asyncio.Lock()):
            yield


class Replicas:
    """Two replicas of one hub."""

    def __init__(self, shared: SharedMemory, apps: list[Aggregator], fronts: list[Served]) -> None:
        self.shared = shared
        self.apps = apps
        self.fronts = fronts

    def sessions(self, number: int) -> dict[str, Any]:
        """The open sessions of one of them."""
        endpoint = next(route.endpoint for route in self.fronts[number].asgi.routes if route.path == "/mcp")
        manager = getattr(endpoint, "app", endpoint).session_manager
        sessions: dict[str, Any] = manager._server_instances
        return sessions

    async def moved(self, client: HttpClient, number: int = 1) -> HttpClient:
        """The client, whose load balancer sends it to another replica from now on. It opens its stream again there."""
        client._url = self.fronts[number].url
        await client.listen_again({})
        return client


@asynccontextmanager
async def replicas(**options: Any) -> AsyncIterator[Replicas]:
    shared = SharedMemory()
    apps, fronts = [], []
    document = options.pop("document", None) or config(a=lean(), old=talking())
    async with AsyncExitStack() as stack:
        for _ in range(2):
            app = build_aggregator(document, **options)
            app._backend.shared_sessions = shared
            apps.append(app)
            fronts.append(await stack.enter_async_context(served(app)))
        yield Replicas(shared, apps, fronts)


_NUMBERS = itertools.count(1)


def call(name: str) -> dict[str, Any]:
    params = {"name": name, "arguments": {}}
    return {"jsonrpc": "2.0", "id": next(_NUMBERS), "method": "tools/call", "params": params}


async def post(front: Served, session: str, headers: dict[str, str] | None = None, **more: str) -> httpx2.Response:
    """A call in a session."""
    told = {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
    async with front.browser(**told, **(headers or {}), **more) as http:
        return await http.post("/mcp", json=call("a:pid"))


def session_of(client: HttpClient) -> str:
    return client._session["Mcp-Session-Id"]
