"""Raw clients over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import suppress
from typing import Any

import httpx2

from support.connections import OneConnectionEach
from support.wire import LEGACY, MODERN, PATIENCE, Message, RawClient

STANDALONE = None
"""The key under which a client keeps what came on no request's stream."""
_OF_TASKS = ("tasks/get", "tasks/update", "tasks/cancel")
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri", **dict.fromkeys(_OF_TASKS, "taskId")}


class HttpClient(RawClient):
    """A client whose every request has a stream of its own; a legacy one also listens on the session's."""

    def __init__(
        self, url: str, *, headers: dict[str, str] | None = None, keep_alive: bool = False, **about: Any
    ) -> None:
        super().__init__(**about)
        self.streams: dict[Any, list[Message]] = defaultdict(list)
        """What came on the stream of each request, by the request's id, and what on none."""
        self.statuses: dict[Any, int] = {}
        """The HTTP status of each response, by the request's id."""
        self._url = url
        # A connection that is kept may be closed by the server just when it is used again.
        transport = httpx2.AsyncHTTPTransport() if keep_alive else OneConnectionEach()
        self._http = httpx2.AsyncClient(timeout=None, transport=transport, trust_env=False, headers=headers)
        self._session: dict[str, str] = {}
        self._posts: dict[Any, asyncio.Task[None]] = {}
        self._is_listening = asyncio.Event()

    async def start(self) -> None:
        await super().start()
        if not self.is_modern:
            await self.posted()
            await self._listen_on()

    def write(self, message: Message) -> None:
        self._posts[message.get("id"), message.get("method")] = asyncio.create_task(self._post(message))

    async def posted(self) -> None:
        """Wait until everything that was sent is answered."""
        await asyncio.gather(*(post for key, post in self._posts.items() if key != (STANDALONE, "listen")))

    async def ended(self, request_id: Any = STANDALONE) -> None:
        """Wait until the server has ended the response to a request, or the session's stream."""
        key = (STANDALONE, "listen") if request_id is STANDALONE else self._key_of(request_id)
        await asyncio.wait_for(asyncio.shield(self._posts[key]), PATIENCE)

    async def listen_again(self, headers: dict[str, str]) -> None:
        """Open the session's stream anew, with other headers for this and what follows; the one before is left."""
        self._posts[STANDALONE, "listen"].cancel()
        await asyncio.wait({self._posts[STANDALONE, "listen"]})
        self._http.headers.update(headers)
        self._is_listening.clear()
        await self._listen_on()

    def hang_up(self, request_id: Any) -> None:
        """Close the connection of one request."""
        for (number, _), post in self._posts.items():
            if number == request_id:
                post.cancel()

    async def close(self, *, ends_session: bool = True) -> None:
        if self._http.is_closed:
            return
        for post in self._posts.values():
            post.cancel()
        await asyncio.gather(*self._posts.values(), return_exceptions=True)
        if self._session and ends_session:
            with suppress(httpx2.TransportError):
                await self._http.delete(self._url, headers=self._headers({}))
        await self._http.aclose()

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream", **self._session}
        if not self.is_modern:
            return headers
        method = message.get("method", "")
        headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if method in _NAMED:
            headers["Mcp-Name"] = str(message["params"].get(_NAMED[method]))
        return headers

    async def _post(self, message: Message) -> None:
        request_id = message.get("id") if "method" in message else None
        body = {"jsonrpc": "2.0", **message}
        async with self._http.stream("POST", self._url, json=body, headers=self._headers(message)) as response:
            self.statuses[request_id] = response.status_code
            if session := response.headers.get("mcp-session-id"):
                self._session = {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._read(response, request_id)
            elif text := await response.aread():
                self._take(json.loads(text), request_id)

    def _key_of(self, request_id: Any) -> tuple[Any, Any]:
        return next(key for key in self._posts if key[0] == request_id)

    async def _listen_on(self) -> None:
        self._posts[STANDALONE, "listen"] = asyncio.create_task(self._listen())
        await asyncio.wait_for(self._is_listening.wait(), PATIENCE)

    async def _listen(self) -> None:
        async with self._http.stream("GET", self._url, headers=self._headers({})) as response:
            assert response.status_code == 200, response.status_code
            self._is_listening.set()
            await self._read(response, STANDALONE)

    async def _read(self, response: httpx2.Response, stream: Any) -> None:
        async for line in response.aiter_lines():
            if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                self._take(json.loads(data), stream)

    def _take(self, message: Message, stream: Any) -> None:
        self.streams[stream].append(message)
        self._received(message)
