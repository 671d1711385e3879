"""A legacy client over streamable HTTP that reads its streams event by event, leaves them and comes back to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from support.wire import LEGACY, PATIENCE, Message

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `message` is the JSON-RPC message in it, if any."""

    event_id: str
    message: Message
    retry: str = ""

    @property
    def says(self) -> str | None:
        """The method of the message, or "result" or "error"; None if there is no message."""
        return self.message.get("method") or next((kind for kind in ("result", "error") if kind in self.message), None)


class Response:
    """A response that is an event stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self._response = response
        self._lines = response.aiter_lines()

    async def next(self) -> Event | None:
        """The next event; None at the end."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                name, _, value = line.partition(":")
                if name:
                    fields[name] = value.strip()
                elif "id" in fields or "data" in fields:
                    message = json.loads(fields["data"]) if fields.get("data") else {}
                    return Event(fields.get("id", ""), message, fields.get("retry", ""))
        return None

    async def rest(self) -> list[Event]:
        """All events until the end."""
        events = []
        while event := await self.next():
            events.append(event)
        return events

    async def json(self) -> Any:
        """The whole body, where it is no event stream."""
        return json.loads(await self._response.aread())


class EventClient:
    """One session."""

    def __init__(self, http: httpx2.AsyncClient, url: str, session: str, version: str) -> None:
        self.headers = {**ACCEPT, "Mcp-Session-Id": session, "MCP-Protocol-Version": version}
        self._http = http
        self._url = url
        self._next_id = 0

    @asynccontextmanager
    async def call(self, name: str, /, **arguments: Any) -> AsyncIterator[Response]:
        """Call a tool; the response is left with the block."""
        self._next_id += 1
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": 1}}
        body = {"jsonrpc": "2.0", "id": self._next_id, "method": "tools/call", "params": params}
        async with self._http.stream("POST", self._url, json=body, headers=self.headers) as response:
            yield Response(response)

    @asynccontextmanager
    async def listen(self, last_event_id: str | None = None, **headers: str) -> AsyncIterator[Response]:
        """Open the session's stream, or come back to the stream that this event was on."""
        resumed = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        async with self._http.stream("GET", self._url, headers={**self.headers, **resumed, **headers}) as response:
            yield Response(response)

    async def end(self) -> None:
        """End the session."""
        await self._http.delete(self._url, headers=self.headers)


async def hello(http: httpx2.AsyncClient, url: str, *, version: str = LEGACY) -> httpx2.Response:
    """The answer to a client that opens a session."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "events", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return await http.post(url, json=message, headers=ACCEPT)


@asynccontextmanager
async def event_client(url: str, *, version: str = LEGACY) -> AsyncIterator[EventClient]:
    """A client that has initialised."""
    async with httpx2.AsyncClient(timeout=None, trust_env=False) as http:
        answer = await hello(http, url, version=version)
        client = EventClient(http, url, answer.headers["mcp-session-id"], version)
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=client.headers)
        yield client
