"""The fast path of a client on a pipe: its requests, line by line."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Set
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from mcp.server.connection import Connection
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types import RequestId
from msgspec import Raw

from fastmcp_aggregator.front.fast_path.call import FastCall, error_line
from fastmcp_aggregator.front.fast_path.path import CALLS, FastPath, SeenCaller, TakesTurns
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.json_rpc import Result


class OpenRequests(Protocol):
    """The requests of the client that are not answered yet; see `front/stdio/conversation.py`."""

    @property
    def open(self) -> Set[RequestId]: ...

    def began(self, request_id: RequestId) -> None: ...

    def answered(self, request_id: RequestId) -> None: ...


class PipeEnds(Protocol):
    """The two ends of the pipe to the client; see `front/stdio/transport.py`."""

    @property
    def has_room(self) -> bool: ...

    @property
    def conversation(self) -> OpenRequests: ...

    def answer(self, line: bytes) -> None: ...

    def read_again(self, request_id: RequestId, line: bytes) -> None: ...


class PipeFront:
    """Takes plain requests off the lines of one client, and answers them."""

    def __init__(self, path: FastPath) -> None:
        self._path = path
        self._pipe: PipeEnds | None = None
        self._connection: Connection | None = None
        self._is_modern = False
        self.calls: dict[RequestId, FastCall] = {}
        """The calls on the fast path."""
        self._taken_over: dict[RequestId, FastCall] = {}
        self._lists: dict[RequestId, tuple[_Line, asyncio.Task[None]]] = {}
        """Requests for lists that take several turns."""

    def attach(self, pipe: PipeEnds) -> None:
        self._pipe = pipe

    def connected(self, connection: Connection, *, is_modern: bool) -> None:
        """The full path has a request of the client, over this connection."""
        self._connection, self._is_modern = connection, is_modern

    @property
    def caller(self) -> SeenCaller | None:
        """The client, once it is known."""
        return None if self._connection is None else SeenCaller(self._connection, is_modern=self._is_modern)

    def take(self, line: bytes) -> bool:
        """True if the fast path serves the request on this line."""
        connection = self._connection
        if b'"method"' not in line:
            return False  # an answer
        if connection is None or not connection.initialize_accepted or self._pipe is None:
            return False
        if len(line) > self._path.most_bytes:
            self._path.decline("too large", line)
            return False
        return self._begin(line, self._pipe, SeenCaller(connection, is_modern=self._is_modern))

    def pass_over(self, lines: list[bytes]) -> None:
        """These come while the full path reads others, and go after them."""
        self._path.decline("busy reader", *lines)

    def _begin(self, line: bytes, pipe: PipeEnds, seen: SeenCaller) -> bool:
        try:
            request = raw_json.read_request(line)
            if self._path.talkers.known and self._path.is_left(request):
                return False
            key = coerce_request_id(raw_json.read_id(request.id))
        except raw_json.Malformed:
            self._path.decline("malformed", line)
            return False
        if key in pipe.conversation.open:
            return False  # the full path refuses it
        responder = _Line(self, pipe, key, line, request.id)
        if request.method not in CALLS and pipe.has_room and self._reply(request, seen, responder):
            return True
        fast = self._path.begin(request, responder, seen)
        if fast is None:
            return False
        if not fast.is_over:
            pipe.conversation.began(key)
            if not fast.taken_over:
                self.calls[key] = fast
        return True

    def _reply(self, request: raw_json.RequestLine, seen: SeenCaller, responder: _Line) -> bool:
        """True if a request is answered that needs no child, now or after some turns."""
        try:
            result = self._path.reply(request, seen)
        except TakesTurns:
            responder.pipe.conversation.began(responder.key)
            listing = asyncio.create_task(self._list(request, seen, responder), name="list")
            self._lists[responder.key] = responder, listing
            return True
        if result is not None:
            responder.send(responder.encoded(result))
        return result is not None

    async def _list(self, request: raw_json.RequestLine, seen: SeenCaller, responder: _Line) -> None:
        """Answer a request for such a list, or leave it to the full path."""
        with self._path.in_flight.track():
            response = await self._path.long_list(request, seen, responder)
        del self._lists[responder.key]
        if response is not None and responder.has_room:
            responder.send(response.whole())
        else:
            responder.pipe.read_again(responder.key, responder.line)

    def resume(self, request_id: RequestId) -> FastCall | None:
        """Pop the call that the full path has taken over, by its request id."""
        return self._taken_over.pop(coerce_request_id(request_id), None)

    def cancel(self, request_id: RequestId) -> None:
        key = coerce_request_id(request_id)
        # What was taken over is found all the same when its line is read again, or it would be sent anew.
        if (fast := self.calls.pop(key, None) or self._taken_over.get(key)) is not None:
            fast.abandon()
        elif (listing := self._lists.pop(key, None)) is not None:
            listing[1].cancel()

    def taken_over(self, key: RequestId, fast: FastCall) -> None:
        """The full path is to serve a call."""
        self.calls.pop(key, None)
        self._taken_over[key] = fast

    def close(self) -> None:
        """The pipe is about to be closed: cut off what is not answered."""
        for fast in [*self.calls.values(), *self._taken_over.values()]:
            if not fast.is_over:
                fast.abandon()
                fast.responder.refuse(errors.cut_off())
        for responder, listing in self._lists.values():
            listing.cancel()
            responder.refuse(errors.cut_off())
        self._lists.clear()
        self.calls.clear()
        self._taken_over.clear()


@dataclass(eq=False, slots=True)  # not frozen, for one is made for each request
class _Line:
    """One request, as it stands on its line."""

    front: PipeFront
    pipe: PipeEnds
    key: RequestId
    line: bytes
    id: Raw
    answer_timeout = math.inf

    @property
    def has_room(self) -> bool:
        return self.pipe.has_room

    def encoded(self, result: Result) -> bytes:
        """The line, with its end: to put that behind 30 MiB would copy them once more."""
        return raw_json.encode_lines([{"jsonrpc": "2.0", "id": self.id, "result": result}])

    def send(self, response: bytes) -> None:
        self.front.calls.pop(self.key, None)
        self.pipe.answer(response)
        self.pipe.conversation.answered(self.key)

    def answer(self, response: bytes, then: Callable[[], None] | None) -> None:
        self.send(response)
        if then is not None:
            then()

    def refuse(self, error: MCPError) -> None:
        self.send(error_line(self.id, error) + b"\n")

    def abandoned(self) -> None:
        """Answer nothing (2025-11-25, cancellation)."""

    def take_over(self, fast: FastCall) -> None:
        self.front.taken_over(self.key, fast)
        self.pipe.read_again(self.key, self.line)


PIPE_FRONT: ContextVar[PipeFront | None] = ContextVar("the fast path of the client on stdio", default=None)
"""Set for the SDK's server that serves the same client, and so for its requests."""
