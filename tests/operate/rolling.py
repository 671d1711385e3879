"""Calls of both eras at a steady rate through a load balancer, while the replicas behind it are restarted in turn."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from support.wire import LEGACY, MODERN, PATIENCE

TOOL = {"name": "a:echo", "arguments": {"text": "hello"}}
_ACCEPT = "application/json, text/event-stream"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "rolling", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Tally:
    """What became of the calls: `answered`, `renewed` sessions, and failures by their kind."""

    answered: int = 0
    renewed: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        rate = self.answered / self.seconds if self.seconds else 0
        failed = ", ".join(f"{count} × {what}" for what, count in self.failures.items()) or "none"
        return f"{self.answered} answered ({rate:.0f}/s), sessions renewed: {self.renewed}, failed: {failed}"


class _Client:
    """One client, of 2026-07-28 or, with a session, of 2025-11-25."""

    def __init__(self, url: str, headers: dict[str, str], *, is_modern: bool, tally: Tally) -> None:
        self._url = url
        self._is_modern = is_modern
        self._tally = tally
        limits = httpx2.Limits(max_connections=4, max_keepalive_connections=4)
        self._http = httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, headers=headers, limits=limits)
        self._session = ""
        self._renewing = asyncio.Lock()
        self._ids = itertools.count(1)

    async def call(self) -> None:
        try:
            session = self._session
            answer = await self._send("tools/call", TOOL, session)
            if answer.status_code == 404 and not self._is_modern:
                await self._renew(session)
                answer = await self._send("tools/call", TOOL, self._session)
            if answer.status_code == 200 and '"content"' in answer.text:
                self._tally.answered += 1
            else:
                self._tally.failures[f"{answer.status_code} {answer.text[:60]!r}"] += 1
        except httpx2.HTTPError as error:
            self._tally.failures[f"{type(error).__name__} {error}"] += 1

    async def begin(self) -> None:
        if self._is_modern:
            return
        about = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "rolling", "version": "1"}}
        session = (await self._send("initialize", about)).headers["mcp-session-id"]
        await self._send("notifications/initialized", None, session)
        self._session = session

    async def _renew(self, lost: str) -> None:
        """Begin anew, as the specification asks of a client whose session is gone; once, whoever notices."""
        async with self._renewing:
            if self._session == lost:
                self._tally.renewed += 1
                await self.begin()

    async def close(self) -> None:
        await self._http.aclose()

    async def _send(self, method: str, params: Any, session: str = "") -> httpx2.Response:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        headers = {"Accept": _ACCEPT}
        if params is not None:
            message |= {"id": next(self._ids), "params": params}
        if self._is_modern:
            message["params"] = {**params, "_meta": _META}
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": params["name"]}
        elif session:
            headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
        return await self._http.post(self._url, json=message, headers=headers)


async def under_load(
    url: str, headers: list[dict[str, str]], restart: Callable[[], Awaitable[None]], *, rate: float = 200.0
) -> Tally:
    """Call at this rate, in all, while `restart` runs; one client of each era for each of the headers."""
    tally = Tally()
    clients = [_Client(url, each, is_modern=era, tally=tally) for each in headers for era in (True, False)]
    await asyncio.gather(*(client.begin() for client in clients))
    calls: set[asyncio.Task[None]] = set()
    restarting = asyncio.ensure_future(restart())
    began, number = time.monotonic(), 0
    while not restarting.done():
        calls.add(call := asyncio.create_task(clients[number % len(clients)].call()))
        call.add_done_callback(calls.discard)
        number += 1
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
    await restarting
    await asyncio.gather(*calls)
    tally.seconds = time.monotonic() - began
    await asyncio.gather(*(client.close() for client in clients))
    return tally
