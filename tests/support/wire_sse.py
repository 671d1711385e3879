"""A raw client of the transport of 2024-11-05: one stream of events, and a POST for each message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urljoin

import httpx2

from support.connections import OneConnectionEach
from support.wire import PATIENCE, Message, RawClient


class SseClient(RawClient):
    """A client that has opened its stream; `statuses` has the HTTP status of each POST, by the message's id."""

    def __init__(self, url: str, *, headers: dict[str, str] | None = None, **about: Any) -> None:
        super().__init__(modern=False, name="old", version="2024-11-05", **about)
        self.statuses: dict[Any, int] = {}
        self.endpoint = ""
        self.is_ended = False
        """Whether the server has ended the stream."""
        self.http = httpx2.AsyncClient(timeout=None, transport=OneConnectionEach(), headers=headers)
        self._url = url
        self._told = asyncio.Event()
        self._posts: asyncio.Task[None] | None = None
        self._stream = asyncio.create_task(self._listen())

    async def open(self) -> None:
        """Wait until the server has said where messages go."""
        await asyncio.wait_for(self._told.wait(), PATIENCE)

    async def start(self) -> None:
        await self.open()
        await super().start()

    def write(self, message: Message) -> None:
        """Messages are posted one after the other, as the SDKs' clients do."""
        self._posts = asyncio.create_task(self._post(message, self._posts))

    async def posted(self) -> None:
        """Wait until every message is accepted, or refused."""
        assert self._posts is not None
        await asyncio.wait_for(self._posts, PATIENCE)

    async def post(self, message: Message, **headers: str) -> httpx2.Response:
        """Post one message; the response."""
        return await self.http.post(self.endpoint, json={"jsonrpc": "2.0", **message}, headers=headers)

    async def close(self) -> None:
        self._stream.cancel()
        await asyncio.gather(self._stream, return_exceptions=True)
        await self.http.aclose()

    async def _post(self, message: Message, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        self.statuses[message.get("id")] = (await self.post(message)).status_code

    async def _listen(self) -> None:
        async with self.http.stream("GET", self._url) as response:
            assert response.status_code == 200, response.status_code
            event = ""
            async for line in _lines(response):
                name, _, value = line.partition(": ")
                if name == "event":
                    event = value
                elif name == "data" and event == "endpoint":
                    self.endpoint = urljoin(self._url, value)
                    self._told.set()
                elif name == "data":
                    self._received(json.loads(value))
        self.is_ended = True


async def _lines(response: httpx2.Response) -> AsyncIterator[str]:
    """The lines as event streams have them; the library also cuts at other characters, which may stand in JSON."""
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()
