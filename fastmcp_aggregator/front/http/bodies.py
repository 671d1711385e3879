"""Request bodies over HTTP: read before a request takes its turn, so that a slow client keeps only itself waiting.

The SDK reads a body in the middle of its work; a client that leaves before its end would be an error in the log then.
"""

from __future__ import annotations

from collections import deque

from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope

BODY_LIMIT = DEFAULT_MAX_REQUEST_BODY_SIZE
"""Bytes of a body that the SDK reads, at most; what is longer it refuses (413)."""


def body_size(scope: Scope) -> int:
    """Bytes of the body, as far as the request says."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length) if length.isdigit() else BODY_LIMIT


async def whole_body(request: Request) -> bytes | None:
    """All of a request's body; None if it is over the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            return None
    return bytes(body)


class Body:
    """One request's body. After `read`, the app behind receives it from here as if it was just coming in."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()

    async def read(self) -> None:
        """Wait for all of it, or for as much as is over the limit. There is no deadline here.

        Raises:
            ClientDisconnect: the client has left.
        """
        size, is_complete = 0, False
        while not is_complete and size <= BODY_LIMIT:
            message = await self._receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            self._messages.append(message)
            size += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)

    @property
    def may_be_request(self) -> bool:
        """Whether what was read may be a JSON-RPC request; false only if it is something else for certain."""
        content = b"".join(message.get("body", b"") for message in self._messages)
        return b"\\u" in content or (b'"method"' in content and b'"id"' in content)

    async def receive(self) -> Message:
        """The next message of the request."""
        return self._messages.popleft() if self._messages else await self._receive()
