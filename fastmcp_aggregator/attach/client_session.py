"""The session of a bridge's client: what it has asked, said and been told, as far as the next hub must know it. Pure.

Theory. A bridge passes lines on. When its hub is gone, the client's session goes on with the next one, which knows
nothing of it. So a few things are kept: the handshake, the log level, the subscriptions, which are repeated there, and
whose answers the client has got already; and which requests are open. Those that reach no server, and so do nothing
twice, are repeated; all others are answered with an error that says what happened. Requests of a hub that is gone are
cancelled; from the second hub on, the ids of its requests are made ones that no hub before has used.
"""

from __future__ import annotations

import json
from typing import Any

from fastmcp_aggregator.attach import envelope
from fastmcp_aggregator.attach.envelope import Id
from fastmcp_aggregator.early.answers import digest_of
from fastmcp_aggregator.early.known_client import LIST_METHODS

_LISTEN = "subscriptions/listen"
_ACKNOWLEDGED = b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"'
_CANCELLED = "notifications/cancelled"
_CANCELLED_BY_HUB = b'{"jsonrpc":"2.0","method":"notifications/cancelled"'
_REQUEST = b'{"jsonrpc":"2.0","id":'
_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
_OURS = "fastmcp-aggregator-attach:"
_LOST = -32603
"""JSON-RPC 2.0, 5.1: internal error."""
_REPEATABLE = LIST_METHODS | {
    "initialize",
    "server/discover",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    _LISTEN,
}
"""Requests that the hub serves itself, or that may be served twice."""
_MOST_SUBSCRIBED = 10_000
_UNKNOWN: tuple[str, bytes | None] = ("", None)


class ClientSession:
    """One client, from its first line to its last, over all hubs that serve it."""

    def __init__(self) -> None:
        self._initialize: bytes | None = None
        """The line of the handshake, once it is answered."""
        self._introduction: Id | None = None
        """The id of the repeated handshake."""
        self._is_initialized = False
        self._level: Any = None
        self._subscribed: dict[str, None] = {}
        self._open: dict[Id, tuple[str, bytes | None]] = {}
        """The requests that are not answered: their methods, and the lines of those that can be repeated."""
        self._asked: dict[Id, Id] = {}
        """The hub's requests that are not answered: as the client knows them, and as the hub does."""
        self._repeated: set[Id] = set()
        """The requests whose answers the client is not to get, or has got already."""
        self._streams: dict[Id, bool] = {}
        """The requests for streams that are not answered, and whether the client knows the stream to be open."""
        self._hubs = 0
        self.listed: dict[str, str] = {}
        """Digests of the lists that the client has got, by method."""

    # The client's lines.

    def sent(self, line: bytes) -> None:
        """Record a line of the client that was sent to the hub, or answered here."""
        message = envelope.read(line)
        if message.method is None:
            return
        if message.id is not None:
            self._open[message.id] = message.method, line if message.method in _REPEATABLE else None
            if message.method == _LISTEN:
                self._streams[message.id] = False
        elif message.method == "notifications/initialized":
            self._is_initialized = True
        elif message.method == _CANCELLED:
            cancelled = message.params.get("requestId")
            if isinstance(cancelled, int | str):
                self._open.pop(cancelled, None)
                self._streams.pop(cancelled, None)

    def for_hub(self, line: bytes) -> bytes | None:
        """The line for the hub; None: nothing, as it answers a question that is over."""
        if not self._asked and self._hubs < 2:
            return line
        message = envelope.read(line)
        if message.method is not None or message.id is None:
            return line
        if message.id not in self._asked:
            return None
        asked = self._asked.pop(message.id)
        return line if asked == message.id else _with_id(line, asked)

    # The hub's lines.

    def received(self, line: bytes) -> bytes | None:
        """The line for the client; None: nothing, as it had that before."""
        answer = envelope.read_answer(line)
        if answer is not None:
            if self._repeated and answer.id in self._repeated:
                self._repeated.discard(answer.id)
                return None
            self._answered(answer, line)
            return line
        if line.startswith(_REQUEST):
            return self._hub_asks(line)
        if self._hubs > 1 and line.startswith(_CANCELLED_BY_HUB):
            return self._hub_cancels(line)
        return line if not line.startswith(_ACKNOWLEDGED) or self._is_news(line) else None

    def _is_news(self, acknowledgement: bytes) -> bool:
        """True if the client does not know yet that this stream is open."""
        meta = envelope.read(acknowledgement).params.get("_meta")
        stream = meta.get(_SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if stream not in self._streams:
            return True
        is_known, self._streams[stream] = self._streams[stream], True
        return not is_known

    def _answered(self, answer: envelope.HubAnswer, line: bytes) -> None:
        method, request = self._open.pop(answer.id, _UNKNOWN)
        if request is None:
            return
        self._streams.pop(answer.id, None)
        if answer.is_error:
            return
        if method in LIST_METHODS:
            self.listed[method] = digest_of(line[answer.start : line.rindex(b"}")])
        elif method == "initialize":
            self._initialize, self._introduction = request, answer.id
        elif method == "logging/setLevel":
            self._level = envelope.read(request).params.get("level")
        elif method == "resources/subscribe" and len(self._subscribed) < _MOST_SUBSCRIBED:
            self._subscribed[str(envelope.read(request).params.get("uri"))] = None
        elif method == "resources/unsubscribe":
            self._subscribed.pop(str(envelope.read(request).params.get("uri")), None)

    def _hub_asks(self, line: bytes) -> bytes:
        message = envelope.read(line)
        if message.id is None or message.method is None:
            return line
        known = message.id if self._hubs < 2 else self._id_of(message.id)
        self._asked[known] = message.id
        return line if known == message.id else _with_id(line, known)

    def _hub_cancels(self, line: bytes) -> bytes:
        message: dict[str, Any] = json.loads(line)
        cancelled = (message.get("params") or {}).get("requestId")
        if isinstance(cancelled, int | str):
            message["params"]["requestId"] = self._id_of(cancelled)
        return _encoded(message)

    def _id_of(self, asked: Id) -> str:
        """The id under which the client knows a request of this hub."""
        return f"{_OURS}{self._hubs}:{json.dumps(asked)}"

    # From one hub to the next.

    def lost(self, why: str, *, is_last: bool = False) -> list[bytes]:
        """The hub is gone: what the client is told of what was on its way.

        With `is_last` there is no other for now: nothing is repeated but the streams that the client knows to be open.
        """
        told = []
        for request_id, (_, line) in list(self._open.items()):
            if line is None or (is_last and not self._streams.get(request_id)):
                del self._open[request_id]
                self._streams.pop(request_id, None)
                error = {"code": _LOST, "message": why}
                told.append(_encoded({"jsonrpc": "2.0", "id": request_id, "error": error}))
        for asked in self._asked:
            params = {"requestId": asked, "reason": why}
            told.append(_encoded({"jsonrpc": "2.0", "method": _CANCELLED, "params": params}))
        self._asked.clear()
        self._repeated.clear()
        return told

    @property
    def has_open(self) -> bool:
        """True if requests are open that a hub is needed for."""
        return bool(self._open)

    @property
    def is_waiting(self) -> bool:
        """True if a response is expected; streams have none."""
        return len(self._open) > len(self._streams)

    def attached(self) -> list[bytes]:
        """Attach to another hub: return the lines that it is sent first; what follows waits for the answer, if it
        `is_introducing`.
        """
        self._hubs += 1
        if self._initialize is None or self._introduction is None:
            return self._repeat_open()
        self._repeated.add(self._introduction)
        return [self._initialize]

    @property
    def is_introducing(self) -> bool:
        """True if the hub has not answered the handshake that was repeated."""
        return self._introduction in self._repeated

    def introduced(self) -> list[bytes]:
        """The hub has answered it: what it is sent next."""
        lines = []
        if self._is_initialized:
            lines.append(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        if self._level is not None:
            lines.append(self._request("logging/setLevel", {"level": self._level}))
        lines += [self._request("resources/subscribe", {"uri": uri}) for uri in self._subscribed]
        return [*lines, *self._repeat_open()]

    def _request(self, method: str, params: dict[str, Any]) -> bytes:
        request_id = f"{_OURS}{len(self._repeated)}"
        self._repeated.add(request_id)
        return _encoded({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    def _repeat_open(self) -> list[bytes]:
        return [line for _, line in self._open.values() if line is not None]


def _with_id(line: bytes, request_id: Id) -> bytes:
    return _encoded({**json.loads(line), "id": request_id})


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
