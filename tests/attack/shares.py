"""Attacks on what all share: places, bytes, connections, sessions, turns. What one does must cost that one."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx2
from support.harness import config, lean
from support.wire import LEGACY

from attack.rooms import Hub, Machine, hub_of_its_own
from attack.table import attack

HEADING = "What all share"
_CLIENT = {"name": "x", "version": "1"}
_MALFORMED = {"tools/call": {"name": 1}, "logging/setLevel": {"level": "loud"}, "resources/read": {"uri": [1]}}
_FOR_MCP = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@asynccontextmanager
async def others_served(hub: Hub) -> AsyncIterator[None]:
    """Meanwhile bob's calls are answered, each of them."""
    refused: list[int] = []

    async def calls() -> None:
        while True:
            with suppress(httpx2.TransportError):
                refused.append((await hub.call("bob", None, "b:echo")).status_code)
            await asyncio.sleep(0.05)

    calling = asyncio.create_task(calls())
    try:
        async with hub.watched(grows_by=128):
            yield
    finally:
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling
    assert refused, "the other caller was not answered once"
    assert set(refused) == {200}, f"the other caller gets {sorted(set(refused) - {200})[0]}"


def _head(hub: Hub, length: int, *headers: str) -> bytes:
    lines = ["POST /mcp/tools/call HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
    lines += [f"authorization: Bearer {hub.keys['ann']}", f"content-length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def _open(hub: Hub, count: int, data: Callable[[int], bytes]) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Connections that stay open, each of which has sent something."""
    writers: list[asyncio.StreamWriter] = []
    try:
        for number in range(count):
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", hub.port)
                writer.write(data(number))
                writers.append(writer)
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.3)


@attack(
    "share-announced",
    "60 bodies of 4 MiB, announced and never sent",
    "others go on",
    room="small",
    finding=5,
)
async def announced(hub: Hub) -> str:
    async with _open(hub, 60, lambda _: _head(hub, 4 * 1024 * 1024)), others_served(hub):
        await asyncio.sleep(2)
    return "others are answered"


@attack(
    "share-trickle",
    "60 bodies of which a byte comes from time to time",
    "408; others go on",
    room="small",
    finding=5,
)
async def trickle(hub: Hub) -> str:
    async with _open(hub, 60, lambda _: _head(hub, 4 * 1024 * 1024)) as writers, others_served(hub):
        for _ in range(30):
            for writer in writers:
                writer.write(b" ")
            await asyncio.sleep(0.1)
    got = await hub.raw(_head(hub, 4 * 1024 * 1024), seconds=30)
    assert b" 408 " in got[:20], f"a body that does not come: {got[:20]!r}"
    return "others are answered; 408"


@attack(
    "share-bytes",
    "bodies that fill the room for bodies, but for their last byte",
    "others go on",
    room="small",
    finding=5,
)
async def filled(hub: Hub) -> str:
    async with _open(hub, 8, lambda _: _head(hub, 3_900_000) + b" " * 3_899_999), others_served(hub):
        await asyncio.sleep(2)
    return "others are answered"


@attack("share-places", "200 calls that are never answered", "others go on", room="small", finding=5)
async def places(hub: Hub) -> str:
    calls = [asyncio.create_task(hub.call("ann", None, "a:hold")) for _ in range(60)]
    try:
        await asyncio.sleep(1)
        async with others_served(hub):
            await asyncio.sleep(1)
    finally:
        await hub.call("bob", None, "a:release")
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    return "others are answered"


@attack(
    "share-turns",
    "one takes all turns of a server",
    "others get the next one",
    room="small",
)
async def turns(hub: Hub) -> str:
    calls = [asyncio.create_task(hub.call("ann", None, "b:progress", steps=1, pause=0.02)) for _ in range(12)]
    answers = [(await hub.call("bob", None, "b:echo")).status_code for _ in range(5)]
    await asyncio.gather(*calls, return_exceptions=True)
    assert set(answers) == {200}, f"{answers}"
    return "each in turn"


@attack(
    "share-server",
    "one keeps every turn of a server by endless calls",
    "others are served",
    room="small",
)
async def server(hub: Hub) -> str:
    calls = [asyncio.create_task(hub.call("ann", None, "b:hold")) for _ in range(8)]
    await asyncio.sleep(1)
    try:
        async with asyncio.timeout(10):
            answer = await hub.call("bob", None, "b:echo")
        assert answer.status_code == 200, f"{answer.status_code}"
    except TimeoutError:
        raise AssertionError("the other waits until one of them ends") from None
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    return "served"


@attack(
    "share-slowloris",
    "900 connections that never end their headers, with 700 descriptors",
    "ended; others go on",
    room="small",
    finding=7,
)
async def slowloris(hub: Hub) -> str:
    async with _open(hub, 900, lambda n: b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-%d: " % n), others_served(hub):
        await asyncio.sleep(2)
    return "others are answered"


@attack(
    "share-idle",
    "900 connections that send nothing, or keep alive",
    "ended; others go on",
    room="small",
    finding=7,
)
async def idle(hub: Hub) -> str:
    hello = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    async with _open(hub, 900, lambda n: hello if n % 2 else b""), others_served(hub):
        await asyncio.sleep(2)
    return "others are answered"


@attack(
    "share-unread", "pipelined requests and large answers that are never read", "bounded; others go on", room="small"
)
async def unread(hub: Hub) -> str:
    body = b'{"name":"a:big","arguments":{"size":3000000}}'
    request = _head(hub, len(body)) + body
    async with _open(hub, 20, lambda _: request * 16), others_served(hub):
        await asyncio.sleep(2)
    return "others are answered"


@attack(
    "share-pipelined",
    "200 connections without credentials bring 16 requests each at once",
    "little is read in each turn",
    room="small",
)
async def pipelined(hub: Hub) -> str:
    several = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 16
    async with others_served(hub):
        for _ in range(3):
            async with _open(hub, 200, lambda _: several):
                await asyncio.sleep(1)
    return "others are answered"


@attack(
    "share-notifications",
    "notifications of 45,000 values, on 8 connections, as fast as possible",
    "they wait like requests; memory stays",
    room="small",
)
async def notifications(hub: Hub) -> str:
    ann = await hub.connect("ann", modern=False)
    nested = "[" * 90 + "]" * 90
    params = f'{{"progressToken":"x","progress":1,"z":[{",".join([nested] * 480)}]}}'
    body = f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}'
    headers = {**_FOR_MCP, **ann._session}

    async def post() -> None:
        while True:
            with suppress(httpx2.TransportError):
                await hub.ask("POST", "/mcp", "ann", content=body, headers=headers)

    async with others_served(hub):
        posting = [asyncio.create_task(post()) for _ in range(8)]
        await asyncio.sleep(10)
        for task in posting:
            task.cancel()
        await asyncio.gather(*posting, return_exceptions=True)
    return "others are answered"


@attack(
    "share-handshakes",
    "60 sessions whose handshakes have 3.5 MB each",
    "413 beyond 64 KiB",
    room="small",
)
async def handshakes(hub: Hub) -> str:
    about = {"protocolVersion": LEGACY, "capabilities": {"experimental": {"x": {"y": "z" * 3_500_000}}}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about | {"clientInfo": _CLIENT}})
    long_name = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {**_CLIENT, "name": "n" * 3_500_000}}
    other = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": long_name})
    async with others_served(hub):
        for content in [body, other] * 30:
            answer = await hub.ask("POST", "/mcp", "ann", content=content, headers=_FOR_MCP)
            assert answer.status_code in (413, 429, 503), f"{answer.status_code}"
    return "413"


@attack(
    "share-log",
    "600 requests under another's session, 600 malformed ones",
    "the log stays small",
    room="small",
)
async def library_log(hub: Hub) -> str:
    ann = await hub.connect("ann", modern=False)
    before = len(hub.log)
    headers = {**_FOR_MCP, **ann._session}
    for number in range(600):
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "a:echo"}}
        assert (await hub.ask("POST", "/mcp", "bob", json=body, headers=headers)).status_code == 404
    for number in range(200):
        for method, params in _MALFORMED.items():
            body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            await hub.ask("POST", "/mcp", "ann", json=body, headers=headers)
    written = len(hub.log) - before
    assert written < 20_000, f"{written // 1000} KB of log"
    return "less than 20 KB of log"


@attack(
    "share-sessions",
    "one key opens 300 sessions, over each transport",
    "bounded; others can open theirs",
    room="small",
    finding=22,
)
async def sessions(hub: Hub) -> str:
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    accept = {"Accept": "application/json, text/event-stream"}
    statuses = [(await hub.ask("POST", "/mcp", "ann", json=body, headers=accept)).status_code for _ in range(1200)]
    assert 200 in statuses, "none could be opened"
    assert set(statuses) != {200}, "1200 sessions were opened"
    client = await hub.connect("bob", modern=False)
    assert await client.names(), "the other cannot open one"
    return "refused beyond its share; the other opens one"


@attack(
    "share-streams",
    "one key opens 400 listening streams",
    "bounded; others can listen",
    room="small",
    finding=7,
)
async def streams(hub: Hub) -> str:
    async with AsyncExitStack() as stack:
        head = f"GET /mcp/sse HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {hub.keys['ann']}\r\n\r\n"
        await stack.enter_async_context(_open(hub, 400, lambda _: head.encode()))
        async with others_served(hub):
            async with asyncio.timeout(20):
                await hub.connect_sse("bob")
    return "the other listens"


@attack(
    "share-errors",
    "10,000 refused requests: no key, unknown names, malformed",
    "log and audit log stay small",
    room="small",
)
async def errors(hub: Hub) -> str:
    before = len(hub.log)
    data = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer x\r\ncontent-length: 0\r\n\r\n" * 1000

    async def send() -> None:
        await hub.raw(data, seconds=5)

    async with others_served(hub):
        await asyncio.gather(*(send() for _ in range(10)))
    written = len(hub.log) - before
    assert written < 100_000, f"{written // 1000} KB of log"
    return "less than 100 KB of log"


@attack(
    "share-left",
    "3,000 requests without credentials whose clients leave",
    "they wait no longer; memory stays",
    room="small",
)
async def left(hub: Hub) -> str:
    data = b"POST /unknown HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 60000\r\n\r\n" + b" " * 60_000
    async with others_served(hub):
        for _ in range(30):
            async with _open(hub, 100, lambda _: data):
                pass
    return "others are answered"


@attack(
    "share-churn",
    "10,000 connections that are opened and left without a word",
    "closed as they come; others go on",
    room="small",
)
async def churn(hub: Hub) -> str:
    def come_and_go() -> None:
        for _ in range(10_000):
            with suppress(OSError), socket.create_connection(("127.0.0.1", hub.port), 10):
                pass

    async with others_served(hub):
        await asyncio.to_thread(come_and_go)
    return "others are answered"


@attack(
    "share-names",
    "60 calls of names that nobody has, beside 1,800 names of 250 characters",
    "few of them are compared",
    room="machine",
)
async def names(machine: Machine) -> str:
    servers = {f"s{n}": lean(tool_names=["x" * 240 + f"{n}_{m}" for m in range(450)]) for n in range(4)}
    async with hub_of_its_own(machine, config(**servers)) as hub, hub.watched(slowest=2.0), hub.bounded(seconds=2.4):
        for number in range(60):
            answer = await hub.call(None, None, f"s1:{'x' * 200}{number}{'y' * 40}")
            assert answer.status_code == 400, f"{answer.status_code}"
    return "less than 40 ms each"


@attack(
    "share-noise",
    "9,000 requests that are no HTTP",
    "the log stays small",
    room="small",
)
async def noise(hub: Hub) -> str:
    before = len(hub.log)
    async with others_served(hub):
        for data in (b"GET /\xff HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", b"\x16\x03\x01\r\n\r\n"):
            for _ in range(300):
                await asyncio.gather(*(hub.raw(data, seconds=5) for _ in range(10)))
    written = len(hub.log) - before
    assert written < 100_000, f"{written // 1000} KB of log"
    return "less than 100 KB of log"
