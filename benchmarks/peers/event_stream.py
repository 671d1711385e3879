"""A client of the old HTTP+SSE transport: requests are posted, and all answers come on one stream of events."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.clients import MODERN, PATIENCE, Connection, HttpClient, Message, Request, checked, encoded, handshake

_MIB = 1 << 20


class Dechunked:
    """The body of a response in chunks, as it comes."""

    def __init__(self) -> None:
        self._held = b""
        self._left = 0

    def fed(self, data: bytes) -> bytes:
        """What of the body is in the next bytes."""
        self._held += data
        body = b""
        while True:
            if self._left:
                taken, self._held = self._held[: self._left], self._held[self._left :]
                self._left -= len(taken)
                body += taken
                if self._left:
                    return body
                continue
            line, found, rest = self._held.lstrip(b"\r\n").partition(b"\r\n")
            if not found:
                return body
            self._left, self._held = int(line.partition(b";")[0], 16), rest
            if not self._left:
                return body


class EventReader:
    """The data of events, in pieces of a stream of whatever size."""

    def __init__(self) -> None:
        self._held = b""

    def fed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The events that are complete now: name and data."""
        *events, self._held = (self._held + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            fields = [line.partition(b":") for line in event.split(b"\n")]
            data = b"\n".join(value.removeprefix(b" ") for field, _, value in fields if field == b"data")
            name = b"".join(value.strip() for field, _, value in fields if field == b"event")
            if data:
                yield name, data


class Stream:
    """A connection as `benchmarks.clients.load` takes it: what is written is posted, what is read are the events.

    `on_message` gets what is no answer.
    """

    def __init__(self, port: int, path: str, on_message: Callable[[Message], None]) -> None:
        self.sock = self
        self._on_message = on_message
        self._port = port
        self._posts = Connection(port)
        self._is_posted = False
        self._stream = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        lines = (f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: text/event-stream", "", "")
        self._stream.sendall("\r\n".join(lines).encode())
        self._chunks: Dechunked | None = None
        self._events = EventReader()
        self._waiting: list[bytes] = []
        self.endpoint = ""
        """Where requests are posted."""
        head, rest = self._head()
        if b"transfer-encoding: chunked" in head.lower():
            self._chunks = Dechunked()
        self._take(rest)
        while not self.endpoint:
            self._take(self._received())

    def fileno(self) -> int:
        """The stream's, on which answers come."""
        return self._stream.fileno()

    def sendall(self, data: bytes) -> None:
        """Post a request, once the one before is accepted."""
        self._accepted()
        self._posts.sock.sendall(data)
        self._is_posted = True

    def post_anew(self) -> None:
        """Post on a new connection from now on: an idle one may have been closed by the server."""
        self._accepted()
        self._posts.sock.close()
        self._posts = Connection(self._port)

    def exchange(self, data: bytes) -> bytes:
        """Post a request; the answer that comes next."""
        self.sendall(data)
        while (answer := self.read()) is None:
            pass
        return answer

    def read(self) -> bytes | None:
        """Read once; an answer, if there is one."""
        if not self._waiting:
            self._take(self._received())
        return self._waiting.pop(0) if self._waiting else None

    def settimeout(self, seconds: float) -> None:
        """How long a silence is waited for."""
        self._stream.settimeout(seconds)

    def close(self) -> None:
        """Close both connections."""
        self._stream.close()
        self._posts.sock.close()

    def _accepted(self) -> None:
        if not self._is_posted:
            return
        while (response := self._posts.read()) is None:
            pass
        checked(response, Request(b"", expected=b" 20"))
        self._is_posted = False

    def _head(self) -> tuple[bytes, bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._received()
        head, _, rest = data.partition(b"\r\n\r\n")
        checked(head, Request(b"", expected=b" 200 "))
        return head, rest

    def _received(self) -> bytes:
        data = self._stream.recv(_MIB)
        if not data:
            raise RuntimeError("the server closed the stream")
        return data

    def _take(self, data: bytes) -> None:
        for name, content in self._events.fed(data if self._chunks is None else self._chunks.fed(data)):
            if name == b"endpoint":
                self.endpoint = content.decode()
            elif b'"method"' in content and "method" in (message := json.loads(content)):
                self._on_message(message)
            else:
                self._waiting.append(content)


class SseClient(HttpClient):
    """A client whose session is one stream."""

    connection: Stream

    def __init__(self, port: int, path: str, **options: Any) -> None:
        self.told: Counter[str] = Counter()
        """The notifications that have come, by method."""
        super().__init__(port, path, **options)
        self.connection.sock.close()
        self.connection = Stream(port, path, lambda message: self.told.update([message["method"]]))
        endpoint = self.connection.endpoint
        self._path = endpoint[endpoint.index("/", endpoint.find("://") + 3 if "://" in endpoint else 0) :]

    def start(self) -> None:
        """Do the handshake of the client's era."""
        if self._era == MODERN:
            return
        self.exchange(self.request("initialize", handshake(self._capabilities)))
        self.connection.sendall(self._post(encoded({"method": "notifications/initialized"})))

    def connect(self) -> None:
        """Keep the session, and post on a new connection."""
        self.connection.post_anew()

    def result(self, method: str, params: Message) -> Message:
        """Send a request; its result."""
        message: Message = json.loads(self.exchange(self.request(method, params)))
        return message["result"]

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()
