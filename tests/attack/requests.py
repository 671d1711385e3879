"""Attacks on how requests are read: web pages, rebinding, smuggling, splitting, odd framing, odd JSON."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from contextlib import suppress
from typing import Any

import httpx2
from support.wire import LEGACY, META, MODERN

from attack.rooms import Hub, Team
from attack.table import attack

HEADING = "How requests are read"
_CALL = json.dumps({"name": "a:echo", "arguments": {}}).encode()
_OF_MODERN = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "a:echo"}


async def _post(
    hub: Hub, body: bytes, *headers: str, target: str = "/mcp/tools/call", host: str = "127.0.0.1"
) -> bytes:
    head = [f"POST {target} HTTP/1.1", f"host: {host}", "connection: close", *headers]
    if not any(name.lower().startswith(("content-length", "transfer-encoding")) for name in headers):
        head.append(f"content-length: {len(body)}")
    if not any(name.lower().startswith("content-type") for name in headers):
        head.append("content-type: application/json")
    return await hub.raw("\r\n".join([*head, "", ""]).encode("latin-1") + body, seconds=20)


async def _apart(hub: Hub, *packets: bytes, seconds: float) -> bytes:
    """What comes back when something is sent in packets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
    got = b""
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(seconds):
            for packet in packets:
                writer.write(packet)
                await writer.drain()
                await asyncio.sleep(0.1)
            while part := await reader.read(65536):
                got += part
    writer.transport.abort()
    return got


def _status(got: bytes) -> int:
    return int(got.split()[1]) if got.startswith(b"HTTP/") else 0


def _is_served(got: bytes) -> bool:
    return b'\\"server\\": \\"lean\\"' in got


@attack(
    "web-origin",
    "foreign origins: another site, `null`, a similar name, another port",
    "403",
    room="open",
    finding=8,
)
async def origin(hub: Hub) -> str:
    odd = ["http://evil.example", "null", "https://127.0.0.1.evil.example", "http://127.0.0.1@evil.example", "file://"]
    odd += [
        "http://evil.example:80",
        "chrome-extension://x",
        "http://localhost.evil.example",
        "http://[::1].evil.example",
        "x",
    ]
    odd += [
        f"http://127.0.0.1:{hub.port + 1}",
        "http://localhost:3000",
        "http://localhost",
        f"https://127.0.0.1:{hub.port}",
    ]
    for value in odd:
        got = await _post(hub, _CALL, f"origin: {value}")
        assert _status(got) == 403, (
            f"{value.replace(str(hub.port + 1), 'PORT').replace(str(hub.port), 'PORT')}: {_status(got)}"
        )
    got = await _post(hub, _CALL, f"origin: http://127.0.0.1:{hub.port}", host=f"127.0.0.1:{hub.port}")
    assert _is_served(got), "the hub's own page is refused"
    return f"403 for {len(odd)} origins"


@attack(
    "web-embedded",
    "what a page of another origin asks for without an Origin: images, scripts, frames",
    "403; a link to the dashboard leads there",
    room="open",
)
async def embedded(hub: Hub) -> str:
    paths = ("/", "/status", "/groups", "/dashboard/state", "/dashboard/icon.svg", "/mcp", "/mcp/sse", "/accounts/mine")
    kinds = [
        (site, dest) for site in ("cross-site", "same-site") for dest in ("image", "script", "iframe", "empty", "")
    ]
    for path in paths:
        for site, dest in kinds:
            told = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest}
            status = await hub.status_of("GET", path, **told)
            assert status == 403, f"{path} as {dest or 'nothing'} of a {site} page: {status}"
    for site in ("cross-site", "same-origin", "none"):
        status = await hub.status_of("GET", "/", **{"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "document"})
        assert status == 200, f"the dashboard itself, {site}: {status}"
    return f"403 in {len(paths) * len(kinds)} ways"


@attack(
    "web-simple",
    "requests without a preflight: `text/plain`, form data, no type",
    "415",
    room="open",
    finding=8,
)
async def simple(hub: Hub) -> str:
    types = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "*/*"]
    types += [
        "text/plain; application/json",
        "application/jsonx",
        "application/json, text/plain",
        "application/csp-report",
    ]
    for value in types:
        got = await _post(hub, _CALL, f"content-type: {value}")
        assert not _is_served(got), f"{value or 'no type'}: served"
    assert _is_served(await _post(hub, _CALL, "content-type: application/json; charset=utf-8"))
    return f"refused for {len(types)} types"


@attack("web-preflight", "preflights and reads of other sites", "no CORS headers", room="open")
async def preflight(hub: Hub) -> str:
    for method, path in (
        ("OPTIONS", "/mcp"),
        ("OPTIONS", "/mcp/tools/call"),
        ("GET", "/status"),
        ("GET", "/dashboard/state"),
    ):
        answer = await hub.ask(
            method, path, headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        )
        assert "access-control-allow-origin" not in answer.headers, f"{method} {path}"
        assert answer.status_code == 403, f"{method} {path}: {answer.status_code}"
    return "403, without CORS"


@attack(
    "web-host",
    "DNS rebinding: a foreign `Host`, several, none, in proxies' headers",
    "400 or 421",
    room="open",
)
async def host(hub: Hub) -> str:
    odd = [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
    ]
    odd += [
        "evil.example/127.0.0.1",
        "evil.example#127.0.0.1",
        "[::1].evil.example",
        "",
        "localhost, evil.example",
        "0x7f.evil",
    ]
    for value in odd:
        got = await _post(hub, _CALL, host=value)
        assert _status(got) in (400, 403, 421), f"{value!r}: {_status(got)}"
    for headers in (
        ("x-forwarded-host: 127.0.0.1",),
        ("forwarded: host=127.0.0.1",),
        ("host: 127.0.0.1",),
        (":authority: 127.0.0.1",),
    ):
        got = await _post(hub, _CALL, *headers, host="evil.example")
        assert _status(got) in (400, 403, 421), f"with {headers[0]}: {_status(got)}"
    return f"refused for {len(odd) + 4} variations"


@attack(
    "web-host-two",
    "a right `Host` beside a wrong one, or a foreign absolute address",
    "400 or 421",
    room="open",
)
async def two_hosts(hub: Hub) -> str:
    for first, second in (("127.0.0.1", "evil.example"), ("evil.example", "127.0.0.1"), ("127.0.0.1", "")):
        got = await _post(hub, _CALL, f"host: {second}", host=first)
        assert _status(got) in (400, 421), f"{first}, then {second}: {_status(got)}"
    for target in ("http://evil.example/mcp/tools/call", "http://127.0.0.1@evil.example/mcp/tools/call", "//evil/mcp"):
        got = await _post(hub, _CALL, target=target)
        assert not _is_served(got), f"{target} is served"
    return "refused in 6 variations"


@attack(
    "web-method",
    "other methods for what a POST does; `X-HTTP-Method-Override`",
    "404 or 405, nothing called",
    room="open",
)
async def method(hub: Hub) -> str:
    for name in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        answer = await hub.ask(
            name, "/mcp/tools/call?name=a:echo", content=_CALL, headers={"X-HTTP-Method-Override": "POST"}
        )
        assert answer.status_code in (404, 405), f"{name}: {answer.status_code}"
    return "404 or 405"


@attack(
    "wire-smuggle",
    "two lengths, a length and chunks, odd chunks, a second request in the body",
    "400 or one answer",
    room="open",
)
async def smuggle(hub: Hub) -> str:
    hidden = (
        b"POST /mcp/tools/call HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
        % (
            len(_CALL),
            _CALL,
        )
    )
    odd = [
        (("content-length: 2", f"content-length: {2 + len(hidden)}"), b"{}" + hidden),
        (("content-length: 2", "content-length: 2"), b"{}" + hidden),
        (("content-length: 2", "transfer-encoding: chunked"), b"0\r\n\r\n" + hidden),
        (("transfer-encoding: chunked", "content-length: 5"), b"0\r\n\r\n" + hidden),
        (("transfer-encoding: chunked, identity",), b"0\r\n\r\n" + hidden),
        (("transfer-encoding: xchunked",), b"0\r\n\r\n" + hidden),
        (("transfer-encoding:\x0bchunked",), b"0\r\n\r\n" + hidden),
        (("transfer-encoding : chunked",), b"0\r\n\r\n" + hidden),
        (("content-length: +2",), b"{}" + hidden),
        (("content-length: 0x2",), b"{}" + hidden),
        (("content-length: 2, 2",), b"{}" + hidden),
        (("content-length: -1",), b"{}" + hidden),
        (("transfer-encoding: chunked",), b"2\n{}\n0\n\n" + hidden),
        (("transfer-encoding: chunked",), b"-2\r\n{}\r\n0\r\n\r\n" + hidden),
        (("transfer-encoding: chunked",), b"2;\r\n\n{}\r\n0\r\n\r\n" + hidden),
    ]
    for number, (headers, body) in enumerate(odd):
        got = await _post(hub, body, *headers, target="/mcp/ping")
        assert got.count(b"HTTP/1.1 ") <= 1, f"variation {number}: {got.count(b'HTTP/1.1 ')} answers"
        assert not _is_served(got), f"variation {number}: what was hidden is served"
    return f"nothing hidden is served in {len(odd)} variations"


@attack(
    "wire-upgrade",
    "upgrades (h2c, WebSocket) with requests as bodies",
    "no upgrade, one answer",
    room="open",
)
async def upgrade(hub: Hub) -> str:
    head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    hidden = (head + b"content-length: %d\r\n\r\n%b") % (b"/mcp/tools/call", len(_CALL), _CALL)
    count = 0
    for fields in (
        b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        b"proxy-connection: Upgrade\r\nupgrade: h2c\r\n",
    ):
        for framed in (
            b"content-length: %d\r\n\r\n%b" % (len(hidden), hidden),
            b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden),
        ):
            lines, blank, body = framed.partition(b"\r\n\r\n")
            got = await _apart(hub, head % b"/mcp/ping" + fields + lines + blank, body, seconds=2)
            assert got.count(b"HTTP/1.1 ") <= 1, f"{got.count(b'HTTP/1.1 ')} answers"
            assert not _is_served(got), "what was hidden is served"
            assert not got.startswith(b"HTTP/1.1 101"), "the protocol is changed"
            count += 1
    return f"nothing hidden is served in {count} variations"


@attack(
    "wire-split",
    "line breaks in names, addresses, versions and paths",
    "no header is added",
)
async def split(room: Team) -> str:
    evil = "x\r\nset-cookie: evil=1\r\n\r\nHTTP/1.1 200 OK\r\n"
    for method, params in (
        ("tools/call", {"name": f"remote:{evil}"}),
        ("tools/call", {"name": "remote:echo", "arguments": {evil: evil}}),
    ):
        answer = await room.one.json_api("ann", method, params, group="both")
        assert "set-cookie" not in answer.headers, "a header was added to the answer"
    for path in (
        "/%0d%0aset-cookie:%20evil=1",
        "/groups/%0d%0aset-cookie:%20evil=1/mcp",
        "/dashboard/%0d%0aset-cookie:x",
    ):
        answer = await room.one.ask("GET", path, "ann")
        assert "set-cookie" not in answer.headers, "a header was added to the answer"
    client = await room.one.connect("ann", "both")
    await client.send(
        "tools/call", {"name": "remote:echo", "arguments": {}, "_meta": {"traceparent": evil, "progressToken": evil}}
    )
    assert not [request for request in room.remote.requests if "set-cookie" in request.headers], (
        "a header was added to a request"
    )
    return "no header is added"


@attack(
    "wire-headers",
    "98 MB of headers, 90,000 headers, one of 700 KB, trailers, folded lines",
    "400 or 431 at 64 KiB, no memory",
    room="open",
    finding=29,
)
async def headers(hub: Hub) -> str:
    async with hub.watched(grows_by=16):
        for data in (
            b"x: " + b"y" * 700_000,
            b"\r\n".join(b"x%d: y" % number for number in range(90_000)),
            b"x: y\r\n " + b" z" * 400_000,
        ):
            got = await hub.raw(
                b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n" + data + b"\r\n\r\n"
            )
            assert _status(got) in (0, 400, 431), f"{_status(got)}"
        got = await hub.raw(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n" + b"x: " + b"y" * 98_000_000)
        assert _status(got) in (0, 400, 431), f"{_status(got)}"
        trailers = b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 40_000 + b"\r\n"
        got = await _post(hub, trailers, "transfer-encoding: chunked", target="/mcp/ping")
        assert _status(got) in (0, 200, 400, 431), f"trailers: {_status(got)}"
    return "refused"


@attack(
    "wire-trailers",
    "key, `Host`, type and session as trailers of a chunked request",
    "they count for nothing",
    room="small",
)
async def trailers(hub: Hub) -> str:
    key, post = hub.keys["ann"], "POST /mcp/tools/call HTTP/1.1\r\n"
    host, kind, known = "host: 127.0.0.1\r\n", "content-type: application/json\r\n", f"x-api-key: {key}\r\n"
    heads = {
        f"authorization: Bearer {key}": host + kind,
        f"x-api-key: {key}": host + kind,
        "host: 127.0.0.1": kind + known,
        "content-type: application/json": host + known,
        "mcp-session-id: x": "",
    }
    for trailer, head in heads.items():
        framing = "transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        body = b"%x\r\n%b\r\n0\r\n%b\r\n\r\n" % (len(_CALL), _CALL, trailer.encode())
        for way in (hub.raw((post + head + framing).encode() + body), _in_parts(hub, post + head + framing, body)):
            got = await way
            name = trailer.partition(":")[0]
            assert _status(got) in (0, 400, 401, 404, 415, 421), f"`{name}` in a trailer: {_status(got)}"
            assert not _is_served(got), f"`{name}` in a trailer counts"
    return f"nothing in {2 * len(heads)} variations"


async def _in_parts(hub: Hub, head: str, body: bytes) -> bytes:
    """The same, with the trailers in a packet of their own."""
    return await _apart(hub, head.encode() + body[:-60], body[-60:], seconds=20)


@attack(
    "wire-lines",
    "line breaks between a call's values, for a server on a pipe",
    "the call alone, on one line",
    room="small",
)
async def lines(hub: Hub) -> str:
    before = (await hub.call("ann", None, "a:pid")).text
    hidden = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "leave", "arguments": {}}}
    )
    legacy = await hub.connect("ann", modern=False)
    meta = json.dumps(
        {
            f"{META}protocolVersion": MODERN,
            f"{META}clientInfo": {"name": "x", "version": "1"},
            f"{META}clientCapabilities": {},
        }
    )
    count = 0
    for line_break in ("\n", "\r\n", "\r", "\n\n"):
        arguments = f'{{"x":{line_break}{hidden}{line_break}}}'
        params = f'{{"name":"a:echo","arguments":{arguments}}}'
        about = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"a:echo","arguments":{arguments}'
        for path, body, headers in (
            ("/mcp/tools/call", params, {}),
            ("/mcp", about + "}}", {**legacy._session}),
            ("/mcp", f'{about},{line_break}"_meta":{meta}}}}}', _OF_MODERN),
            ("/mcp", about.replace("{", "{" + line_break) + "}}", {**legacy._session}),
        ):
            accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
            answer = await hub.ask("POST", path, "ann", content=body, headers={**accept, **headers})
            assert answer.status_code < 500, f"{answer.status_code}"
            count += 1
    assert (await hub.call("ann", None, "a:pid")).text == before, "the server did what stood on a line of its own"
    return f"one call each, {count} times"


@attack(
    "wire-compressed",
    "10 KB that become 10 MB (gzip, deflate, two layers)",
    "400 or 415",
    room="open",
)
async def compressed(hub: Hub) -> str:
    zeros = b'{"name":"a:echo","arguments":{"x":"' + b"0" * 10_000_000 + b'"}}'
    async with hub.watched(grows_by=16):
        for name, body in (
            ("gzip", gzip.compress(zeros)),
            ("deflate", zlib.compress(zeros)),
            ("gzip, gzip", gzip.compress(gzip.compress(zeros))),
        ):
            got = await _post(hub, body, f"content-encoding: {name}")
            assert _status(got) in (400, 413, 415), f"{name}: {_status(got)}"
    return "400 or 415"


def _modern(name: str) -> bytes:
    meta = {
        f"{META}protocolVersion": MODERN,
        f"{META}clientInfo": {"name": "x", "version": "1"},
        f"{META}clientCapabilities": {},
    }
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": {}, "_meta": meta},
    }
    return json.dumps(message).encode()


@attack(
    "wire-mcp-headers",
    "`Mcp-Method`, `Mcp-Name` and versions that differ from the body, or come twice",
    "400",
    room="open",
)
async def mcp_headers(hub: Hub) -> str:
    version, accept = f"mcp-protocol-version: {MODERN}", "accept: application/json, text/event-stream"
    good = [version, "mcp-method: tools/call", "mcp-name: a:echo", accept]
    assert _is_served(await _post(hub, _modern("a:echo"), *good, target="/mcp")), "a good one is refused"
    odd = [
        [version, "mcp-method: tools/list", "mcp-name: a:echo", accept],
        [version, "mcp-method: tools/call", "mcp-name: a:fail", accept],
        [version, "mcp-method: tools/call", accept],
        [version, "mcp-name: a:echo", accept],
        [version, "mcp-method: subscriptions/listen", "mcp-name: a:echo", accept],
        [version, "mcp-method: TOOLS/CALL", "mcp-name: a:echo", accept],
        [version, "mcp-method: ping", "mcp-method: tools/call", "mcp-name: a:echo", accept],
        [version, "mcp-method: tools/call", "mcp-name: a:fail", "mcp-name: a:echo", accept],
        [version, "mcp-method: tools/call", "mcp-name: =?base64?YTpmYWls?=", accept],
        [f"mcp-protocol-version: {LEGACY}", "mcp-method: tools/call", "mcp-name: a:echo", accept],
        ["mcp-protocol-version: 2027-01-01", "mcp-method: tools/call", "mcp-name: a:echo", accept],
    ]
    for number, lines in enumerate(odd):
        got = await _post(hub, _modern("a:echo"), *lines, target="/mcp")
        assert not _is_served(got), f"variation {number}: served"
        assert _status(got) in (400, 404), f"variation {number}: {_status(got)}"
    return f"refused in {len(odd)} variations"


@attack(
    "wire-method-json",
    "MCP's headers and `?session_id=x` on the JSON API",
    "they mean nothing there",
    room="small",
    finding=4,
)
async def method_in_json(hub: Hub) -> str:
    tricks: list[dict[str, Any]] = [
        {"headers": {"Mcp-Method": "subscriptions/listen", "MCP-Protocol-Version": MODERN}},
        {"params": {"session_id": "x"}},
        {"headers": {"Mcp-Session-Id": "x"}},
    ]
    enough = 40 - 4 - 8 - 4
    for number, trick in enumerate(tricks):
        calls = [
            asyncio.create_task(hub.ask("POST", "/mcp/tools/call", "ann", json={"name": "a:hold"}, **trick))
            for _ in range(40)
        ]

        def refused(calls: list[asyncio.Task[httpx2.Response]] = calls) -> int:
            return sum(call.done() and call.result().status_code == 503 for call in calls)

        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                while refused() < enough:
                    await asyncio.sleep(0.05)
        shown = await hub.ask("POST", "/mcp/tools/call", "bob", json={"name": "b:echo"})
        let_in = 40 - refused()
        await hub.ask("POST", "/mcp/tools/call", "bob", json={"name": "a:release"})
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert shown.status_code == 200, f"variation {number}: the other caller gets {shown.status_code}"
        assert let_in <= 40 - enough, f"variation {number}: {let_in} of 40 let in"
    return "beyond the limit 503, the other is served"


ODD = {
    "deep arrays": b'{"name":"a:echo","arguments":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    "deep objects": b'{"name":"a:echo","arguments":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "open arrays": b"[" * 1_000_000,
    "a million digits": b'{"name":"a:echo","arguments":{"x":' + b"9" * 1_000_000 + b"}}",
    "5000 digits": b'{"name":"a:echo","arguments":{"x":' + b"9" * 5000 + b"}}",
    "1e999": b'{"name":"a:echo","arguments":{"x":1e999}}',
    "NaN": b'{"name":"a:echo","arguments":{"x":NaN}}',
    "-Infinity": b'{"name":"a:echo","arguments":{"x":-Infinity}}',
    "a lone surrogate": b'{"name":"a:echo","arguments":{"x":"\\ud800"}}',
    "a lone surrogate as a name": b'{"name":"a:\\udfff","arguments":{"\\ud800":1}}',
    "no UTF-8": b'{"name":"a:echo","arguments":{"x":"\xff\xed\xa0\x80"}}',
    "doubled names": b'{"name":"a:fail","name":"a:echo","arguments":{},"arguments":{"x":1}}',
    "UTF-16": '{"name":"a:echo","arguments":{}}'.encode("utf-16"),
    "a BOM": b"\xef\xbb\xbf" + _CALL,
    "200,000 members": b'{"name":"a:echo","arguments":{' + b",".join(b'"%d":0' % n for n in range(200_000)) + b"}}",
    "colliding names": b'{"name":"a:echo","arguments":{'
    + b",".join(b'"%d":0' % (n << 61) for n in range(20_000))
    + b"}}",
    "a batch": b"[" + b",".join([_CALL] * 1000) + b"]",
    "nothing": b"",
    "not an object": b"1",
}


@attack(
    "json-odd",
    "deep nesting, big integers, NaN, lone surrogates, doubled names, other encodings",
    "400, 413 or an answer",
    room="open",
)
async def odd_json(hub: Hub) -> str:
    async with hub.watched(grows_by=160):
        for name, body in ODD.items():
            for target in ("/mcp/tools/call", "/mcp"):
                got = await _post(hub, body, "accept: application/json, text/event-stream", target=target)
                assert 200 <= _status(got) < 500, f"{name} at {target}: {_status(got)}"
    return f"{len(ODD)} bodies, none a 5xx"


@attack(
    "json-ids",
    "ids and tokens that are objects, floats, null, huge, others'",
    "refused, or given back as they are",
    room="open",
)
async def ids(hub: Hub) -> str:
    for value in (
        "null",
        "1.5",
        "{}",
        "[]",
        "true",
        "1e400",
        "9" * 400,
        '"' + "x" * 70_000 + '"',
        '"\\ud800"',
        "-1",
        "1e2",
    ):
        body = b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % value.encode()
        got = await _post(hub, body, "accept: application/json, text/event-stream", target="/mcp")
        assert 200 <= _status(got) < 500, f"{value[:9]}: {_status(got)}"
    return "none a 5xx"


@attack("page-files", "files outside of the dashboard: traversal, escapes, absolute paths, NUL", "404", room="open")
async def page_files(hub: Hub) -> str:
    odd = [
        "../routes.py",
        "..%2froutes.py",
        "%2e%2e/routes.py",
        "..\\routes.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "index.html%00.js",
    ]
    odd += [
        "....//routes.py",
        "..;/routes.py",
        "%c0%ae%c0%ae/routes.py",
        ".",
        "",
        "static",
        "index.html/",
        "INDEX.HTML~",
    ]
    for name in odd:
        got = await hub.raw(f"GET /dashboard/{name} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode())
        assert _status(got) in (307, 400, 404, 405), f"{name!r}: {_status(got)}"
        assert b"import" not in got, f"{name!r}: a file of the program"
    return f"404 for {len(odd)} names"


@attack(
    "page-headers",
    "the dashboard in a frame, with foreign scripts, in caches",
    "only its own files; states are not stored",
    room="open",
)
async def page_headers(hub: Hub) -> str:
    for path in ("/", "/dashboard/state"):
        answer = await hub.ask("GET", path)
        policy = answer.headers.get("content-security-policy", "")
        assert "default-src" in policy, f"{path}: no policy"
        assert "unsafe" not in policy, f"{path}: {policy}"
        assert "frame-ancestors 'none'" in policy or answer.headers.get("x-frame-options"), f"{path}: may be framed"
        assert answer.headers.get("x-content-type-options") == "nosniff", f"{path}: may be sniffed"
    for path in ("/dashboard/state", "/dashboard/history", "/status", "/groups", "/keys", "/openapi.json"):
        answer = await hub.ask("GET", path)
        assert answer.headers["cache-control"] == "no-store", f"{path}: may be stored"
    return "own files alone, no frames"


@attack(
    "forwarded-for",
    "`X-Forwarded-For` and `Forwarded` from a client on loopback",
    "believed only from a named proxy",
    room="small",
    finding=28,
)
async def forwarded(hub: Hub) -> str:
    await hub.ask("GET", "/status", "x", headers={"X-Forwarded-For": "203.0.113.77"})
    await asyncio.sleep(0.3)
    assert not [e for e in hub.audit() if e.get("client") == "203.0.113.77"], (
        "the audit log has the address that was claimed"
    )
    return "the audit log has the real address"
