"""The clients that measure: sockets, pipes and bytes, with next to nothing between them and the clock.

A request is encoded once; each time it is sent, only its id is new. An answer is not parsed: it is looked at until
it is complete, and for what it must hold.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
ERAS = (LEGACY, MODERN)
META = "io.modelcontextprotocol/"
CLIENT = {"name": "benchmark", "version": "1"}
FIRST_ID = 100_000_000
"""Ids have so many digits that the length of a request never changes."""
PATIENCE = 60.0
"""Seconds of silence after which a server is given up."""
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_MIB = 1 << 20

Message = dict[str, Any]


@dataclass
class Request:
    """A request that can be sent again and again. `expected` must be in each answer."""

    before: bytes
    after: bytes = b""
    expected: bytes = b'"result"'
    ids: Iterator[int] | None = None

    def encoded(self) -> bytes:
        """Its bytes, with a new id."""
        return self.before if self.ids is None else b"%b%d%b" % (self.before, next(self.ids), self.after)


class Client(Protocol):
    """What can be measured. `connect` is called before each visit, outside of the time that is taken."""

    def connect(self) -> None: ...

    def exchange(self, request: Request) -> bytes:
        """Send a request and wait for its answer."""
        ...


def enveloped(params: Message, era: str, capabilities: Message) -> Message:
    """The params of a request, with what a modern client says of itself each time."""
    if era == LEGACY:
        return params
    about = {"protocolVersion": MODERN, "clientInfo": CLIENT, "clientCapabilities": capabilities}
    return {**params, "_meta": {**{META + key: value for key, value in about.items()}, **params.get("_meta", {})}}


def encoded(message: Message) -> bytes:
    """A message as JSON."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()


def handshake(capabilities: Message) -> Message:
    """The params of `initialize`."""
    return {"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": CLIENT}


class StdioClient:
    """A server as a child process. `answer` is the result that each of its questions gets."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        era: str = LEGACY,
        capabilities: Message | None = None,
        answer: Message | None = None,
        stderr: Path | None = None,
        **options: Any,
    ) -> None:
        self._started = time.perf_counter()
        self._stderr = stderr
        with open(stderr or os.devnull, "wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0, **options
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._ids = itertools.count(FIRST_ID)
        self._held = b""
        self._era = era
        self._capabilities = capabilities or {}
        self._answer = answer
        self.told: Counter[str] = Counter()
        """The notifications that have come, by method."""
        if era == LEGACY:
            try:
                self.result("initialize", handshake(self._capabilities))
            except BaseException:
                self.process.kill()
                self.process.wait()
                raise
            self._write(encoded({"method": "notifications/initialized"}) + b"\n")

    def request(self, method: str, params: Message) -> Request:
        """A request to be measured."""
        params = enveloped(params, self._era, self._capabilities)
        line = encoded({"id": FIRST_ID, "method": method, "params": params}) + b"\n"
        before, _, after = line.partition(b"%d" % FIRST_ID)
        return Request(before, after, ids=self._ids)

    def result(self, method: str, params: Message) -> Message:
        """Send a request; its result."""
        message: Message = json.loads(self.exchange(self.request(method, params)))
        return message["result"]

    def age(self) -> float:
        """Seconds since its process was started."""
        return time.perf_counter() - self._started

    def connect(self) -> None:
        """It is connected."""

    def exchange(self, request: Request) -> bytes:
        """Send a request and wait for its answer."""
        self._write(request.encoded())
        while True:
            for line in self._answers():
                return checked(line, request)

    def converse(self, request: Request, params: Message) -> bytes:
        """An exchange in which the server asks once: a modern client gives its answer with a second request."""
        line = self.exchange(request)
        if self._era == LEGACY:
            return line
        return self.exchange(self.request("tools/call", answered(line, params, self._answer)))

    def burst(self, request: Request, count: int, in_flight: int) -> float:
        """Send a request so many times, and never more at once; the seconds until all are answered."""
        began = time.perf_counter()
        self._write(b"".join(request.encoded() for _ in range(in_flight)))
        sent, open_ = in_flight, in_flight
        while open_:
            lines = self._answers()
            for line in lines:
                checked(line, request)
            more = min(len(lines), count - sent)
            if more > 0:
                self._write(b"".join(request.encoded() for _ in range(more)))
                sent += more
            open_ += max(more, 0) - len(lines)
        return time.perf_counter() - began

    def close(self) -> None:
        """Close its stdin and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _answers(self) -> list[bytes]:
        """The answers among the lines that come next; what the server asks is answered."""
        chunks = [self._held]
        while True:
            chunk = os.read(self._out, _MIB)
            if not chunk:
                said = self._stderr.read_text(errors="replace") if self._stderr else ""
                raise RuntimeError(f"the server ended with code {self.process.wait()}: {said[-2000:]}")
            chunks.append(chunk)
            if b"\n" in chunk:
                break
        data = b"".join(chunks)
        *lines, self._held = data.split(b"\n")
        return lines if b'"method"' not in data else [line for line in lines if self._is_answer(line)]

    def _is_answer(self, line: bytes) -> bool:
        if b'"method"' not in line:
            return True
        message = json.loads(line)
        if "id" in message and "method" in message:
            self._write(encoded({"id": message["id"], "result": self._answer}) + b"\n")
        elif "method" in message:
            self.told[message["method"]] += 1
        return "method" not in message

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._in, data) :]


def checked(answer: bytes, request: Request) -> bytes:
    """The answer, if it is one.

    Raises:
        RuntimeError: it does not have what is expected.
    """
    if request.expected not in answer:
        raise RuntimeError(f"not the expected answer: {answer[:500]!r}")
    return answer


def answered(question: bytes, params: Message, answer: Message | None) -> Message:
    """The params of the request with which a modern client answers the questions of a result."""
    result = json.loads(question)["result"]
    given = {"inputResponses": dict.fromkeys(result["inputRequests"], answer)}
    return {**params, **given, **({"requestState": result["requestState"]} if "requestState" in result else {})}


@dataclass
class Connection:
    """One kept-alive connection to an HTTP server."""

    port: int
    sock: socket.socket = field(init=False)
    _received: bytearray = field(default_factory=bytearray)
    _end: int | None = None
    _is_chunked: bool = False

    def __post_init__(self) -> None:
        self.sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, data: bytes, on_data: Callable[[bytes], None] = lambda data: None) -> bytes:
        """Send a request and read its response, of which every part is shown to `on_data`."""
        self.sock.sendall(data)
        while (response := self.read(on_data)) is None:
            pass
        return response

    def read(self, on_data: Callable[[bytes], None] = lambda data: None) -> bytes | None:
        """Read once; the response, head and body, if that was its end."""
        data = self.sock.recv(_MIB)
        if not data:
            raise RuntimeError(f"the server closed the connection after {bytes(self._received)[:500]!r}")
        self._received += data
        on_data(data)
        if not self._is_complete():
            return None
        response = bytes(self._received)
        self._received, self._end, self._is_chunked = bytearray(), None, False
        return response

    def _is_complete(self) -> bool:
        if self._end is None and not self._is_chunked:
            head, found, _ = bytes(self._received).partition(b"\r\n\r\n")
            if not found:
                return False
            _, has_length, rest = head.lower().partition(b"content-length:")
            self._is_chunked = b"transfer-encoding: chunked" in head.lower()
            length = int(rest.partition(b"\r\n")[0]) if has_length else 0
            self._end = None if self._is_chunked else len(head) + 4 + length
        if self._end is not None:
            return len(self._received) >= self._end
        # The last chunk. In none of JSON or of events is there a line with a 0 alone.
        return self._received.endswith(b"\r\n0\r\n\r\n")


class HttpClient:
    """A client of an HTTP server, with one kept-alive connection. `path` is the MCP endpoint's."""

    def __init__(
        self,
        port: int,
        path: str = "/mcp",
        *,
        era: str = LEGACY,
        key: str | None = None,
        capabilities: Message | None = None,
        answer: Message | None = None,
    ) -> None:
        self._port = port
        self._path = path
        self._era = era
        self._ids = itertools.count(FIRST_ID)
        self._capabilities = capabilities or {}
        self._answer = answer
        self._headers = {"Host": f"127.0.0.1:{port}", "Content-Type": "application/json"}
        self._headers["Accept"] = "application/json, text/event-stream"
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self.connection = Connection(port)
        self._second = Connection(port) if answer is not None else None

    def start(self) -> None:
        """Do the handshake of the client's era."""
        self._headers["MCP-Protocol-Version"] = self._era
        if self._era == MODERN:
            return
        response = self.exchange(self.request("initialize", handshake(self._capabilities)))
        head = response.partition(b"\r\n\r\n")[0].decode()
        lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
        self._headers["Mcp-Session-Id"] = lines["mcp-session-id"]
        message = encoded({"method": "notifications/initialized"})
        checked(self.connection.exchange(self._post(message)), Request(b"", expected=b" 202 "))

    def request(self, method: str, params: Message) -> Request:
        """A request to be measured."""
        headers = {}
        if self._era == MODERN:
            headers["Mcp-Method"] = method
            if method in _NAMED:
                headers["Mcp-Name"] = str(params[_NAMED[method]])
        params = enveloped(params, self._era, self._capabilities)
        data = self._post(encoded({"id": FIRST_ID, "method": method, "params": params}), headers)
        before, _, after = data.partition(b"%d" % FIRST_ID)
        return Request(before, after, ids=self._ids)

    def plain_request(self, path: str, body: Message | None = None, *, expected: bytes = b" 200 ") -> Request:
        """A request that is no MCP: a POST of JSON, or a GET."""
        if body is None:
            lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in self._headers.items()), "", ""]
            return Request("\r\n".join(lines).encode(), expected=expected)
        return Request(self._post(json.dumps(body).encode(), path=path), expected=expected)

    def result(self, method: str, params: Message) -> Message:
        """Send a request; its result."""
        message: Message = json.loads(body_of(self.exchange(self.request(method, params))))
        return message["result"]

    def connect(self) -> None:
        """Connect anew: an idle connection may have been closed by the server."""
        self.close()
        self.connection = Connection(self._port)
        self._second = Connection(self._port) if self._answer is not None else None

    def exchange(self, request: Request) -> bytes:
        """Send a request and wait for its response."""
        return checked(self.connection.exchange(request.encoded()), request)

    def converse(self, request: Request, params: Message) -> bytes:
        """An exchange in which the server asks once, and is answered: on the stream, or with a second request."""
        response = checked(self.connection.exchange(request.encoded(), self._answer_question), request)
        if self._era == LEGACY:
            return response
        return self.exchange(self.request("tools/call", answered(body_of(response), params, self._answer)))

    def close(self) -> None:
        """Close the connections."""
        for connection in (self.connection, self._second):
            if connection is not None:
                connection.sock.close()

    def _answer_question(self, data: bytes) -> None:
        for line in data.splitlines():
            if self._second is not None and line.startswith(b"data:") and b'"elicitation/create"' in line:
                number = json.loads(line[5:])["id"]
                answer = self._post(encoded({"id": number, "result": self._answer}))
                checked(self._second.exchange(answer), Request(b"", expected=b" 202 "))

    def _post(self, body: bytes, headers: dict[str, str] | None = None, *, path: str | None = None) -> bytes:
        headers = {**self._headers, **(headers or {}), "Content-Length": str(len(body))}
        lines = [f"POST {path or self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + body


def body_of(response: bytes) -> bytes:
    """The JSON in a response: its body, or the data of its last event."""
    body = response.partition(b"\r\n\r\n")[2]
    events = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
    return events[-1] if events else body


def burst(pairs: Sequence[tuple[HttpClient, Request]], count: int) -> float:
    """All clients send at once, each its next request when it is answered; the seconds until `count` are answered."""
    began = time.perf_counter()
    for _ in itertools.islice(load(pairs, lambda sent: sent < count), count):
        pass
    return time.perf_counter() - began


def load(
    pairs: Sequence[tuple[HttpClient, Request]], goes_on: Callable[[int], bool]
) -> Iterator[tuple[int, float, float]]:
    """Let all clients send, each its next request when it is answered, as long as `goes_on` says of the number sent.

    Of each answer: which client's it is, when it came, and the seconds that it took.
    """
    poll = select.epoll()
    waiting: dict[int, tuple[int, Connection, Request, float]] = {}
    sent = 0

    def send(index: int) -> None:
        nonlocal sent
        client, request = pairs[index]
        waiting[client.connection.sock.fileno()] = index, client.connection, request, time.perf_counter()
        client.connection.sock.sendall(request.encoded())
        sent += 1

    for index, (client, _) in enumerate(pairs):
        poll.register(client.connection.sock.fileno(), select.EPOLLIN)
        send(index)
    try:
        while waiting:
            ready = poll.poll(PATIENCE)
            if not ready:
                raise RuntimeError("the server is silent")
            for descriptor, _ in ready:
                index, connection, request, began = waiting[descriptor]
                response = connection.read()
                if response is None:
                    continue
                checked(response, request)
                now = time.perf_counter()
                del waiting[descriptor]
                if goes_on(sent):
                    send(index)
                yield index, now, now - began
    finally:
        poll.close()
