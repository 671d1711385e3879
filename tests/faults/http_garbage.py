"""Malformed HTTP requests to an MCP endpoint, made from good ones, and what comes back for them over a real socket."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from garbage import Garbage, Message, client_messages, written
from support.harness import LEGACY, MODERN, PATIENCE

SESSION = b"mcp-session-id"
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ANSWER_IN_STREAM = re.compile(rb'"(result|error)":|"notifications/subscriptions/acknowledged".*\n')
_METHODS = [b"GET", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"FOO", b"post", b"", b"\0"]
_TARGETS = [b"/", b"/mcp/", b"/mcp/../mcp", b"//mcp", b"/MCP", b"*", b"http://x/mcp", b"mcp", b"", b"/mcp?a=%00&a=%ff"]
_TARGETS += [b"/health", b"/ready", b"/status", b"/metrics", b"/groups", b"/groups/x/mcp", b"/openapi.json", b"/mcp/x"]
_TARGETS += [b"/dashboard/state", b"/dashboard/names", b"/dashboard/../x", b"/dashboard/%2e%2e/x", b"/dashboard/app.js"]
_TARGETS += [b"/mcp#x", b"/%6dcp", b"/mcp\0", b"/m\xc3\xbccp", b"/" + b"x" * 70_000]
_HEADERS = [
    *(b"host", b"content-type", b"accept", b"mcp-protocol-version", b"mcp-method", b"mcp-name", SESSION),
    *(b"origin", b"last-event-id", b"content-encoding", b"expect", b"upgrade", b"connection", b"cookie"),
    *(b"if-none-match", b"prefer", b"accept-encoding", b"x-forwarded-for", b"forwarded", b"x-api-key"),
    *(b"mcp-param-x", b"authorization", b"x", b"", b"a b"),
]
_VALUES = [
    *(b"", b" ", b"*/*", b"text/plain", b"text/event-stream", b"application/json", b"application/json;charset=utf-16"),
    *(b"2025-11-25", b"2025-03-26", b"2026-07-28", b"1999-01-01", b"tools/call", b"ping", b"subscriptions/listen"),
    *(b"a:echo", b"=?base64?YTplY2hv?=", b"=?base64?/?=", b"evil.example", b"http://evil.example", b"null", b"gzip"),
    *(b"100-continue", b"websocket", b"close", b"Bearer x", b"0" * 32, b"-1", b"9" * 30, b"1e3", b"chunked", b"\xff"),
    *(b"x" * 9000, b"a,b", b"\0", b"\r", b"\xc3\xbc"),
]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as it is sent."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def encoded(self) -> bytes:
        """With its length."""
        headers = [*self.headers, (b"content-length", b"%d" % len(self.body))]
        return self.head(headers) + self.body

    def head(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The part before the body."""
        lines = [b"%s %s HTTP/1.1" % (self.method, self.target), *(b"%s: %s" % header for header in headers)]
        return b"\r\n".join(lines) + b"\r\n\r\n"


def request(message: Message, *, session: str | None = None) -> HttpRequest:
    """A good request: of a legacy client that has or begins a session, or of a modern one."""
    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
    ]
    if _is_modern(message):
        headers += [(b"mcp-protocol-version", MODERN.encode()), (b"mcp-method", message["method"].encode())]
        if (name := message["params"].get(_NAMES.get(message["method"], ""))) is not None:
            headers += [(b"mcp-name", name.encode())]
    elif session is not None and message.get("method") != "initialize":
        headers += [(b"mcp-protocol-version", LEGACY.encode()), (SESSION, session.encode())]
    return HttpRequest(b"POST", b"/mcp", tuple(headers), written({"jsonrpc": "2.0", **message}).encode())


def _is_modern(message: Message) -> bool:
    return "io.modelcontextprotocol/protocolVersion" in (message.get("params") or {}).get("_meta", {})


def face_request(message: Message, params: bytes) -> HttpRequest:
    """A request to the JSON API, which has the method as its path and the parameters as its body."""
    headers = ((b"host", b"127.0.0.1"), (b"content-type", b"application/json"))
    return HttpRequest(b"POST", b"/mcp/" + message["method"].encode(), headers, params)


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes to send, and whether they are a whole request, to which there must be an answer."""

    data: bytes
    is_whole: bool


class HttpGarbage:
    """Makes malformed requests."""

    def __init__(self, random: Random, session: str) -> None:
        self.random = random
        self._session = session
        self._messages = [m for m in client_messages(modern=random.random() < 0.5) if m.get("id") != 1_000_000]
        self._garbage = Garbage(random, self._messages)

    def sent(self) -> Sent:
        """Something to send; mostly a well-framed request whose content is odd."""
        message = self.random.choice(self._messages)
        good = request(message, session=self._session)
        kind = self.random.randrange(100)
        if kind < 10 and "method" in message:
            params = self._garbage.mutated(message["params"])
            return Sent(face_request(message, params).encoded(), is_whole=True)
        if kind < 45:
            return Sent(self._with_odd_body(good, message).encoded(), is_whole=True)
        if kind < 70:
            return Sent(self._with_odd_head(good).encoded(), is_whole=True)
        if kind < 90:
            return Sent(self._badly_framed(good), is_whole=False)
        if kind < 91:
            return Sent(replace(good, body=b" " * 5_000_000).encoded(), is_whole=True)
        return Sent(self._garbage.damaged(good.encoded()), is_whole=False)

    def _with_odd_body(self, good: HttpRequest, message: Message) -> HttpRequest:
        if self.random.random() < 0.8:
            return replace(good, body=self._garbage.message(message))
        make = self.random.choice([self._garbage.batch, self._garbage.odd_json, self._garbage.noise])
        return replace(good, body=make())

    def _with_odd_head(self, good: HttpRequest) -> HttpRequest:
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.randrange(6)
            if kind == 0:
                good = replace(good, method=self.random.choice(_METHODS))
            elif kind == 1:
                good = replace(good, target=self.random.choice(_TARGETS))
            else:
                good = replace(good, headers=tuple(self._odd_headers(list(good.headers))))
        return good

    def _odd_headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        place = self.random.randrange(len(headers)) if headers else 0
        odd = (self.random.choice(_HEADERS), self.random.choice(_VALUES))
        kind = self.random.randrange(4)
        if kind == 0 or not headers:
            return [*headers, odd]
        if kind == 1:
            return headers[:place] + headers[place + 1 :]
        if kind == 2:
            return [*headers, headers[place]]
        return [*headers[:place], (headers[place][0], odd[1]), *headers[place + 1 :]]

    def _badly_framed(self, good: HttpRequest) -> bytes:
        body, length = good.body, len(good.body)
        chunked = (b"transfer-encoding", b"chunked")
        frames: list[tuple[list[tuple[bytes, bytes]], bytes]] = [
            ([(b"content-length", b"%d" % self.random.randrange(length))], body),
            ([(b"content-length", b"%d" % (length + self.random.randint(1, 1000)))], body),
            ([(b"content-length", self.random.choice((b"-1", b"x", b"", b"9" * 30, b"+5", b"1e1", b"0x10")))], body),
            ([(b"content-length", b"%d" % length), (b"content-length", b"1")], body),
            ([(b"content-length", b"%d" % length), chunked], body),
            ([], body),
            ([chunked], b"%x\r\n%s\r\n0\r\n\r\n" % (length, body)),
            ([chunked], b"%x;x=y\r\n%s\r\n0\r\nx: y\r\n\r\n" % (length, body)),
            ([chunked], b"%x\r\n%s\r\n" % (length, body)),
            ([chunked], b"%x\r\n%s0\r\n\r\n" % (length + 7, body)),
            ([chunked], self.random.choice((b"zz\r\n", b"-1\r\n", b"f" * 20 + b"\r\n", b"\r\n\r\n", b"5\r\n"))),
            ([chunked], self._garbage.damaged(b"%x\r\n%s\r\n0\r\n\r\n" % (length, body))),
        ]
        headers, data = self.random.choice(frames)
        whole = good.head([*good.headers, *headers]) + data
        return whole[: self.random.randrange(len(whole))] if self.random.random() < 0.2 else whole


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def message(self) -> Any:
        """The JSON-RPC message in it, if there is one; of a stream, the last."""
        kind, text = self.headers.get("content-type", ""), self.body.decode()
        if kind.startswith("text/event-stream"):
            events = [line[5:] for line in text.split("\n") if line.startswith("data:") and line[5:].strip()]
            return json.loads(events[-1]) if events else None
        return json.loads(text) if kind.startswith("application/json") and text else None


async def exchange(
    port: int, sent: Sent, *, ending: str = "wait", pause: asyncio.Event | None = None
) -> HttpAnswer | None:
    """Send it over a connection of its own, and read the answer; None if the server has closed without one.

    What is no whole request is answered only once the client closes its side (`half-close`), or it leaves (`abort`).
    The last byte is sent when the `pause` is over.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                if pause is not None:
                    writer.write(sent.data[:-1])
                    await pause.wait()
                writer.write(sent.data if pause is None else sent.data[-1:])
                if ending != "abort":
                    await writer.drain()
                if ending == "half-close":
                    writer.write_eof()
                return None if ending == "abort" else await _read_answer(reader, sent.data.partition(b" ")[0])
    finally:
        writer.transport.abort()
    return None


async def _read_answer(reader: asyncio.StreamReader, method: bytes) -> HttpAnswer | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
    status = int(head[0].split()[1])
    if status == 100:
        return await _read_answer(reader, method)
    is_stream = headers.get("content-type", "").startswith("text/event-stream")
    if method == b"HEAD" or (method == b"GET" and is_stream):
        return HttpAnswer(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        body = await _read_chunks(reader, until=_ANSWER_IN_STREAM if is_stream else None)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return HttpAnswer(status, headers, body)


async def _read_chunks(reader: asyncio.StreamReader, *, until: re.Pattern[bytes] | None) -> bytes:
    """The whole body, or, of a stream that may never end, what comes up to its answer."""
    body = b""
    while size := int((await reader.readline()).partition(b";")[0] or b"0", 16):
        body += await reader.readexactly(size)
        await reader.readline()
        if until is not None and until.search(body):
            break
    return body
