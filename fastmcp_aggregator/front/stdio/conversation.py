"""Requests of one client on a pipe that are not answered yet: for a graceful end, and so that no two have the same id.

A client may close its end right after its last request. Everything that came before the end is still answered, so the
program ends when the last answer is written, and not when the pipe does.

Of two requests with one id at the same time nothing tells which an answer is for, or which is cancelled. So the second
is refused (2025-11-25, requests: an id must not have been used before); used again after the answer, it does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from fastmcp_aggregator.front.wire.errors import cut_off, id_in_use
from fastmcp_aggregator.message_streams import LineWriter, MessageWriter, read_message
from fastmcp_aggregator.protocol.methods import CANCELLED, LISTEN

_HANDSHAKES = ("initialize", "server/discover")
_CLOSED = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
"""The SDK's answer to a request that it does not serve to the end."""


class Conversation:
    """The messages that are read and written on stdio. `has_more` tells whether read lines still wait to be taken."""

    def __init__(
        self,
        has_more: Callable[[], bool],
        refuse: Callable[[JSONRPCError], None],
        on_replayed: Callable[[], None] = lambda: None,
    ) -> None:
        """`refuse` sends an error; `on_replayed` is told when a request that was answered before was served again."""
        self.client_left = False
        self.is_cut_off = False
        """True once open requests are not waited for any longer."""
        self.first: JSONRPCRequest | None = None
        self.introduction: dict[str, dict[str, Any]] = {}
        """The result of the handshake, by its method."""
        self.introduced = asyncio.Event()
        """Set when the first request is answered."""
        self._replayed: RequestId | None = None
        self._on_replayed = on_replayed
        self._has_more = has_more
        self._refuse = refuse
        self.open: set[Any] = set()
        """The requests that are not answered yet."""
        self._streams: set[Any] = set()
        """Requests for streams among them, whose answers are not awaited."""
        self._again: dict[Any, bytes] = {}
        """The lines of those among them that are read a second time, as they came."""
        self._over = asyncio.Event()

    def read(self, message: Any) -> bool:
        """A message came from the client; whether it is to be served."""
        if isinstance(message, JSONRPCRequest):
            key = coerce_request_id(message.id)
            if self._is_twice(key, message):
                self._refuse(JSONRPCError(jsonrpc="2.0", id=message.id, error=id_in_use().error))
                return False
            self.open.add(key)
            if message.method == LISTEN:
                self._streams.add(key)
            else:
                self.first = self.first or message
        elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED:
            self._forget(_identity((message.params or {}).get("requestId")))
        self.check()
        return True

    def _is_twice(self, key: RequestId, request: JSONRPCRequest) -> bool:
        """True if another request has its id, which is not answered yet."""
        if key in self._again and read_message(self._again[key]) == request:
            del self._again[key]
            return False
        return key in self.open

    def _forget(self, request_id: RequestId | None) -> None:
        self.open.discard(request_id)
        self._streams.discard(request_id)

    def read_again(self, request_id: RequestId, line: bytes) -> None:
        """This line, with a request that is served, is going to be read a second time."""
        self._again[request_id] = line

    @property
    def awaited(self) -> int:
        """The number of answers that the client waits for."""
        return len(self.open) - len(self._streams)

    def replay(self, request_id: RequestId) -> None:
        """The request of this id, which comes now, is answered already."""
        self._replayed = _identity(request_id)

    def is_replayed(self, answer: JSONRPCResponse | JSONRPCError) -> bool:
        """True if the client has got it before."""
        return self._replayed is not None and _identity(answer.id) == self._replayed

    def began(self, request_id: RequestId) -> None:
        self.open.add(request_id)

    def answered(self, request_id: RequestId | None) -> None:
        self._forget(request_id)
        self._again.pop(request_id, None)
        self.check()

    def written(self, answer: JSONRPCResponse | JSONRPCError) -> None:
        key = _identity(answer.id)
        if not self.introduced.is_set() and self.first is not None and key == _identity(self.first.id):
            self._introduce(self.first, answer)
        self.answered(key)

    def _introduce(self, first: JSONRPCRequest, answer: JSONRPCResponse | JSONRPCError) -> None:
        if isinstance(answer, JSONRPCResponse) and first.method in _HANDSHAKES:
            self.introduction[first.method] = answer.result
        self.introduced.set()
        if self._replayed is not None:
            self._replayed = None
            self._on_replayed()

    def leave(self) -> None:
        """The client has closed its end."""
        self.client_left = True
        self.check()

    def abandon(self) -> None:
        """End the conversation with a client that does not read."""
        self.client_left = True
        self._over.set()

    def check(self) -> None:
        """Notice when everything is answered."""
        if self.client_left and not self.awaited and not self._has_more():
            self._over.set()

    async def over(self, timeout: float) -> None:
        """Wait until the client has left and all that it had asked is answered, for `timeout` seconds at most."""
        try:
            await asyncio.wait_for(self._over.wait(), timeout)
        except TimeoutError:
            return


class ConversationWriter(MessageWriter):
    """Messages in, lines out, the answers among them told to the conversation."""

    def __init__(self, pipe: LineWriter, conversation: Conversation) -> None:
        super().__init__(pipe)
        self._conversation = conversation

    async def send(self, item: SessionMessage, /) -> None:
        answer = item.message
        if isinstance(answer, JSONRPCNotification | JSONRPCRequest):
            await super().send(item)
            return
        try:
            if self._conversation.is_cut_off and isinstance(answer, JSONRPCError) and answer.error == _CLOSED:
                # The SDK's error does not say what has happened.
                item = SessionMessage(JSONRPCError(jsonrpc="2.0", id=answer.id, error=cut_off().error))
            if not self._conversation.is_replayed(answer):
                await super().send(item)
        finally:
            self._conversation.written(answer)


def _identity(value: object) -> RequestId | None:
    """The SDK's key of a request, for which "7" and 7 are one id; None if it is no id."""
    request_id = as_request_id(value)
    return None if request_id is None else coerce_request_id(request_id)
