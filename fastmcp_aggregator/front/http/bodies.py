"""Request bodies over HTTP: read before a request takes its turn, so that a slow client keeps only itself waiting.

The SDK reads a body in the middle of its work; a client that leaves before its end would be an error in the log then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

BODY_LIMIT = DEFAULT_MAX_REQUEST_BODY_SIZE
"""Bytes of a body that the SDK reads, at most; what is longer it refuses (413)."""
MIN_RATE = 16 * 1024
"""Bytes a second that a body must come with, once its first seconds are over."""


async def whole_body(request: Request) -> bytes | None:
    """All of a request's body; None if it is over the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            return None
    return bytes(body)


class NoRoom(Exception):
    """There is no room for more of a body."""


class Body:
    """One request's body. After `read`, the app behind receives it from here as if it was just coming in."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()

    async def read(self, has_room: Callable[[int], bool], *, bound: float, grace: float) -> None:
        """Wait for all of it, or for as much as is over the limit.

        `has_room` is asked for each part that has come, by its bytes. The body may take `grace` seconds, more as more
        of it comes, and never more than `bound`.

        Raises:
            ClientDisconnect: the client has left.
            NoRoom: there is none for what has come.
            TimeoutError: it comes too slowly.
        """
        size, is_complete = 0, False
        async with asyncio.timeout(min(bound, grace)) as deadline:
            began = asyncio.get_running_loop().time()
            while not is_complete and size <= BODY_LIMIT:
                message = await self._receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                part = len(message.get("body", b""))
                if not has_room(part):
                    raise NoRoom
                self._messages.append(message)
                size += part
                is_complete = not message.get("more_body", False)
                deadline.reschedule(began + min(bound, grace + size / MIN_RATE))

    @property
    def content(self) -> bytes:
        """What was read."""
        return b"".join(message.get("body", b"") for message in self._messages)

    async def receive(self) -> Message:
        """The next message of the request."""
        return self._messages.popleft() if self._messages else await self._receive()


class NoBody:
    """The receiving side of a GET: a body means nothing there (RFC 9110, section 9.3.1), so what comes is dropped."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_begun = False

    async def receive(self) -> Message:
        """The next message of the request."""
        if not self._has_begun:
            self._has_begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        while (message := await self._receive())["type"] == "http.request":
            pass
        return message
