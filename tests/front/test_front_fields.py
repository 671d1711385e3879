"""What the parser of HTTP leaves to us: white space, heads without end, trailers, and which Host counts."""

import asyncio
import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.harness import MODERN, PATIENCE, config, lean
from support.memory import build_aggregator
from support.serving import Served, served
from uvicorn.protocols.http.h11_impl import H11Protocol

from fastmcp_aggregator.front.http import server
from fastmcp_aggregator.front.http.boundary import ErrorBoundary
from fastmcp_aggregator.front.http.gate import CONNECTION

META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


async def test_white_space_around_a_value_is_no_part_of_it() -> None:
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    headers = [(b"mcp-name", b" \ta b \t"), (b"empty", b" "), (b"plain", b"x")]
    await ErrorBoundary(inner)({"type": "http", "headers": headers}, None, None)  # type: ignore[arg-type]
    await ErrorBoundary(inner)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert seen[0]["headers"] == [(b"mcp-name", b"a b"), (b"empty", b""), (b"plain", b"x")]
    assert seen[1] == {"type": "lifespan"}


async def test_white_space_is_stripped_once() -> None:
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["headers"])

    headers = [(b"plain", b"x")]
    scope = {"type": "http", "headers": headers, CONNECTION: object()}
    await ErrorBoundary(inner)(scope, None, None)  # type: ignore[arg-type]
    assert seen[0] is headers


@pytest.mark.parametrize("parser", ["h11", "httptools"])
async def test_a_value_is_understood_whatever_parses_it(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if parser == "h11":  # as in another ASGI server
        ours = {"connections", "reads", "address_of", "has_left", "known", "arrival"}
        monkeypatch.setattr(
            server,
            "ClientConnection",
            lambda **options: H11Protocol(**{name: value for name, value in options.items() if name not in ours}),
        )
    async with served(build_aggregator(config(a=lean()))) as front:
        place = urlsplit(front.url)
        params = {"name": "a:echo", "arguments": {}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        lines = [
            f"POST {place.path} HTTP/1.1",
            f"Host: {place.netloc} ",
            "Connection: close",
            "Content-Type: application/json \t",
            "Accept:\tapplication/json, text/event-stream  ",
            f"Content-Length: {len(body)}",
            f"MCP-Protocol-Version: {MODERN} ",
            "Mcp-Method: tools/call\t",
            "Mcp-Name:  \t a:echo \t ",
        ]
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 "), answer


@pytest.mark.parametrize("trailer", [False, True])
async def test_heads_and_trailers_without_end_are_refused(trailer: bool) -> None:
    async with served(build_aggregator(config(a=lean()))) as front:
        place = urlsplit(front.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        head = f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
        writer.write(head.encode())
        if trailer:
            writer.write(b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        sent = 0
        with suppress(ConnectionError):
            while not reader.at_eof() and sent < 64 * 1024**2:
                writer.write(b"X-More: " + b"x" * 10_000 + b"\r\n")
                sent += 10_000
                await asyncio.wait_for(writer.drain(), PATIENCE)
        assert sent < 16 * 1024**2
        writer.close()


async def test_a_body_in_small_chunks_is_taken_whole() -> None:
    async with served(build_aggregator(config(a=lean()))) as front:
        place = urlsplit(front.url)
        body = json.dumps({"name": "a:echo", "arguments": {"text": "x" * 40_000}}).encode()
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        head = f"POST {place.path}/tools/call HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
        head += "Content-Type: application/json\r\n"
        writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        writer.write(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]


JSON = "Content-Type: application/json"
HEADS = {
    "as it should be": ("/", ["Host: {place}", JSON], "", 200),
    "a type in a trailer": ("/", ["Host: {place}"], JSON, 415),
    "a Host in a trailer": ("/", ["Host: evil.example", JSON], "Host: {place}", 421),
    "two Hosts": ("/", ["Host: {place}", "Host: evil.example", JSON], "", 400),
    "a target elsewhere": ("http://evil.example/", ["Host: {place}", JSON], "", 421),
    "a target here": ("http://{place}/", ["Host: evil.example", JSON], "", 200),
}


@pytest.mark.parametrize(("target", "head", "trailer", "status"), HEADS.values(), ids=HEADS)
async def test_only_the_head_and_the_target_say_what_a_request_is(
    target: str, head: list[str], trailer: str, status: int
) -> None:
    async with served(build_aggregator(config(a=lean()))) as front:
        place = urlsplit(front.url)
        lines = [f"POST {target}{place.path[1:]}/tools/list HTTP/1.1", *head, "Connection: close"]
        text = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", "2", "{}", "0", *filter(None, [trailer]), "", ""])
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(text.replace("{place}", place.netloc).encode())
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer


UPGRADES = {
    "HTTP/2": ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"],
    "WebSocket": ["Connection: upgrade", "Upgrade: websocket"],
    "a proxy's": ["Proxy-Connection: Upgrade", "Upgrade: h2c"],
}


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize("fields", UPGRADES.values(), ids=UPGRADES)
async def test_who_asks_for_an_upgrade_is_served_as_if_not_and_its_body_is_no_other_request(
    fields: list[str], is_apart: bool, is_chunked: bool
) -> None:
    async with served(build_aggregator(config(a=lean()))) as front:
        place = urlsplit(front.url)
        hidden = f"GET /health HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n"
        body = json.dumps({"name": "a:echo", "arguments": {"text": f"kept {hidden}"}}).encode()
        length = ["Transfer-Encoding: chunked"] if is_chunked else [f"Content-Length: {len(body)}"]
        head = [f"POST {place.path}/tools/call HTTP/1.1", f"Host: {place.netloc}", JSON, *fields, *length, "", ""]
        last = f"GET /health HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write("\r\n".join(head).encode())
        if is_apart:
            await writer.drain()
            await front_has_read(front)
        writer.write((b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body) + last)
        answers = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == answers.count(b"HTTP/1.1 ") == 2
    assert b"kept GET /health" in answers


async def front_has_read(front: Served) -> None:
    """What was sent on other connections before has been read: a request on one of its own is answered."""
    async with front.browser() as http:
        assert (await http.get("/health")).status_code == 200


async def test_no_tunnel_is_opened() -> None:
    async with served(build_aggregator(config(a=lean()))) as front:
        place = urlsplit(front.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(f"CONNECT {place.netloc} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_request_without_a_body_behind_a_plain_call_is_answered() -> None:
    async with served(build_aggregator(config(a=lean()))) as front:
        place = urlsplit(front.url)
        body = json.dumps({"name": "a:echo", "arguments": {}}).encode()
        call = [f"POST {place.path}/tools/call HTTP/1.1", f"Host: {place.netloc}", JSON, f"Content-Length: {len(body)}"]
        look = ["HEAD /health HTTP/1.1", f"Host: {place.netloc}", "Connection: close"]
        async with front.browser() as http:  # from now on such a call is a plain one
            assert (await http.post("/mcp/tools/call", json={"name": "a:echo", "arguments": {}})).status_code == 200
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write("\r\n".join([*call, "", ""]).encode() + body + "\r\n".join([*look, "", ""]).encode())
        answers = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 2
