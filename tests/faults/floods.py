"""What others feel of a caller that does its worst and is refused, or is within all its limits.

    PYTHONPATH=tests python tests/faults/floods.py [NAME …]

A hub runs as a process, and so does who floods it, on 8 connections or more. Another caller calls one after the other,
in slices: the flood takes turns with quiet. It has the same address, and opens a connection for each call, unless the
row says otherwise. Each flood is held if the other's p99 is under three times that of the quiet slices, and each of its
calls is answered. The other has a key, so it is another caller than who floods from its address, as one behind the same
NAT: without authentication all of an address are one. Nothing else may run on the machine.
"""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from share_attacks import INITIALIZE, MIB, QUICK, Answer, Hub, read_answer, running_hub
from support.harness import lean, talking

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import read_keys, write_keys
from fastmcp_aggregator.access.roles import ROLES, USUAL

CONNECTIONS, ROUNDS, CALLS = 8, 8, 50
SETTLES = 0.3
"""Seconds until a flood has come, and until it is over."""
_MOST_LEFT = 5000
"""Connections that a storm has open at once."""
LIMITS = {"rate_limit": 100, "callers": '{"bob": {"rate_limit": 0}}'}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
Body = dict[str, Any]


def modern(method: str, **params: Any) -> Body:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}


@dataclass(frozen=True)
class Flood:
    """What is sent on each connection, again and again; and the settings of the hub that it is sent to."""

    body: Body
    path: str = "/mcp/tools/call"
    method: str = "POST"
    settings: Body = field(default_factory=dict)
    keys: int = 1
    """Callers that do it, of one address; 0: nobody, without credentials."""
    authorization: str = ""
    """Credentials in place of a key."""
    connections: int = CONNECTIONS
    pipelined: int = 1
    """Requests that are sent at once on each of them."""
    host: str = "127.0.0.1"
    chunk: int = 0
    """Bytes of each chunk of a body; 0: its length is told before."""
    leaves_after: int | None = None
    """Bytes of a request that are sent before the connection is closed, without an answer."""
    stays: bool = False
    """Whether it is left open after that, for as long as the hub keeps it, and the next one opened."""
    is_dropped: bool = False
    """Whether the connection is closed after the head of an answer, and opened anew."""
    pause: float = 0.0
    """Seconds between two bytes of a body; 0: it is sent at once."""
    is_slow_to_read: bool = False
    has_session: bool = False
    """Whether it is sent in a session, which is opened first."""
    has_fast_path: bool = True
    subscribed: int = 0
    """Sessions that are opened before, and subscribe to a resource."""
    other: str = "127.0.0.1"
    """The address of the other caller."""
    is_other_kept: bool = False
    """Whether that one keeps its connection, as MCP clients do."""
    has_all_roles: bool = False
    """Whether who does it may observe and read metrics, too."""
    gets: int | None = 200
    """A status that some of it is answered with, or it would be another flood; None: nothing is answered in time."""


NOTIFICATION: Body = {
    "jsonrpc": "2.0",
    "method": "notifications/progress",
    "params": {"progressToken": "x", "progress": 1, "z": [json.loads("[" * 90 + "]" * 90) for _ in range(500)]},
}
NESTED = json.loads('{"a":' * 90 + "1" + "}" * 90)
LARGE_LIST = {"entries": {"a": lean(), "b": lean(tools=2000)}}
PIPELINED: Any = {"connections": 200, "pipelined": 60, "gets": None}
"""More than may wait on a connection, which is closed then."""
STORMS: dict[str, Any] = {
    "connections that are left at once": {"leaves_after": 0},
    "half a request on each connection": {"leaves_after": 60},
    "a request on each connection that is left at once": {"leaves_after": MIB},
    "half a request on each connection that stays": {"leaves_after": 60, "stays": True},
}
"""Storms of connections: the bytes that are sent on each."""
OTHERS: dict[str, Any] = {
    "keeps its connection": {"is_other_kept": True},
    "has another address": {"other": "127.0.0.2"},
    "connects for each call": {},
}
FLOODS = {
    "calls over the limit": Flood(QUICK, settings=LIMITS),
    "wrong credentials": Flood(QUICK, authorization="Bearer wrong", gets=401),
    "a wrong key": Flood(QUICK, authorization=f"Bearer {new_key('eve', None, None)[0]}", gets=401),
    "no credentials": Flood(QUICK, keys=0, gets=401),
    "the page without credentials": Flood({}, "/", "GET", keys=0, connections=120, pipelined=16, gets=404),
    "unknown paths without credentials": Flood({}, "/unknown", keys=0, connections=120, pipelined=16, gets=404),
    "small calls": Flood(QUICK),
    "four callers of one address": Flood(QUICK, keys=4),
    "calls of 1 MiB": Flood({"name": "a:echo", "arguments": {"text": "x" * MIB}}),
    "answers of 9 MiB": Flood({"name": "a:big", "arguments": {"size": 9 * MIB}}),
    "lists of 2000 tools": Flood({}, "/mcp/tools/list", settings=LARGE_LIST),
    "searches in 2000 tools": Flood(
        {"name": "search_tools", "arguments": {"query": "a tool that does something"}},
        settings={**LARGE_LIST, "tool_search": "true"},
    ),
    "subscriptions opened and dropped": Flood(
        modern("subscriptions/listen", notifications={"toolsListChanged": True}), "/mcp", is_dropped=True
    ),
    "sessions opened and dropped": Flood(INITIALIZE, "/mcp", is_dropped=True),
    "metrics of 2000 tools": Flood(
        {}, "/metrics", "GET", settings={**LARGE_LIST, "metrics": "true"}, has_all_roles=True
    ),
    "status": Flood({}, "/status", "GET"),
    "the dashboard": Flood(
        {}, "/dashboard/state", "GET", settings={**LARGE_LIST, "dashboard": "true"}, has_all_roles=True
    ),
    "notifications into a session": Flood(NOTIFICATION, "/mcp", has_session=True, gets=202),
    "values into a session": Flood(
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"x": [NESTED] * 400}}},
        "/mcp",
        has_session=True,
        has_fast_path=False,
    ),
    "updates for 300 sessions": Flood(
        {"name": "a:play", "arguments": {"script": [{"update": "note:///a"}]}},
        settings={"entries": {"a": talking(), "b": lean()}},
        subscribed=300,
    ),
    "a wrong key, pipelined": Flood(QUICK, authorization=f"Bearer {new_key('eve', None, None)[0]}", **PIPELINED),
    "unknown paths, pipelined": Flood({}, "/unknown", keys=0, **PIPELINED),
    "the page, pipelined": Flood({}, "/", "GET", keys=0, **PIPELINED),
    "a foreign Host, pipelined": Flood({}, "/health", "GET", keys=0, host="evil.example.com", **PIPELINED),
    **{
        f"{name}; the other {who}": Flood(QUICK, keys=0, connections=64, gets=None, **of_storm, **of_other)
        for name, of_storm in STORMS.items()
        for who, of_other in OTHERS.items()
    },
    "bodies in chunks of a byte": Flood({"name": "a:echo", "arguments": {"text": "x" * 30_000}}, chunk=1),
    "empty lines on a server's stderr": Flood({"name": "a:flood", "arguments": {"lines": 100_000, "length": 0}}),
    "bodies that come slowly": Flood({"name": "a:echo", "arguments": {"text": "x" * 100_000}}, pause=0.001, gets=None),
    "answers read slowly": Flood({"name": "a:echo", "arguments": {"text": "x" * MIB}}, is_slow_to_read=True, gets=None),
}


@dataclass
class Seen:
    """What the other caller saw: seconds of its calls, and what was not answered."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    async def calls(self, ask: Callable[[], Awaitable[Answer]]) -> None:
        for _ in range(CALLS):
            began = time.perf_counter()
            answer = await ask()
            self.seconds.append(time.perf_counter() - began)
            self.statuses[answer.status] += 1

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[98]


async def asking(hub: Hub, flood: Flood) -> Callable[[], Awaitable[Answer]]:
    """How the other caller calls."""
    key = {"X-API-Key": hub.bob["Authorization"].removeprefix("Bearer "), "Content-Type": "application/json"}
    if not flood.is_other_kept:
        return partial(hub.call, key, {"name": "b:echo"}, address=flood.other)
    reader, writer = await hub.connect(flood.other)
    body = json.dumps({"name": "b:echo"}).encode()

    async def ask() -> Answer:
        writer.write(hub.head("POST /mcp/tools/call", key, len(body)) + body)
        try:
            return await asyncio.wait_for(read_answer(reader), 20)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return Answer()

    return ask


async def measured(name: str, folder: Path) -> str:
    """What a flood did to the other caller.

    Raises:
        AssertionError: more than it may.
    """
    flood = FLOODS[name]
    async with running_hub(folder, **{**flood.settings, "max_sessions": 1000}) as hub:
        credentials = [hub.ann["Authorization"], *_more_keys(folder, flood.keys - 1, USUAL)][: flood.keys]
        if flood.has_all_roles:
            credentials = _more_keys(folder, 1, ROLES)
        if flood.authorization:
            credentials = [flood.authorization]
        command = [sys.executable, __file__, "--flood", name, str(hub.port), *(credentials or [""])]
        flooding = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            assert flooding.stdout is not None
            async with asyncio.timeout(30):
                await flooding.stdout.readline()
            psutil.Process(flooding.pid).nice(10)  # it has a machine of its own
            quiet, under, ask = Seen(), Seen(), await asking(hub, flood)
            for _ in range(ROUNDS):
                flooding.send_signal(signal.SIGSTOP)
                await asyncio.sleep(SETTLES)
                await quiet.calls(ask)
                flooding.send_signal(signal.SIGCONT)
                await asyncio.sleep(SETTLES)
                await under.calls(ask)
            assert flooding.returncode is None, "the flood has ended"
            flooding.send_signal(signal.SIGTERM)
            got = (await flooding.stdout.read()).decode().strip()
        finally:
            if flooding.returncode is None:
                flooding.kill()
            await flooding.wait()
    median = statistics.median(under.seconds) * 1000
    told = f"p99 {quiet.p99 * 1000:.1f} → {under.p99 * 1000:.1f} ms ({under.p99 / quiet.p99:.1f} ×; median "
    told += f"{statistics.median(quiet.seconds) * 1000:.1f} → {median:.1f}); the flood got {got}"
    assert set(quiet.statuses + under.statuses) == {200}, f"{told}; the other {dict(under.statuses)}"
    assert under.p99 < 3 * quiet.p99, told
    assert flood.gets is None or f"{flood.gets}: " in got, f"{told}, where {flood.gets} was meant"
    return told


def _more_keys(folder: Path, count: int, roles: Collection[str]) -> list[str]:
    """Authorization of so many callers more."""
    path = folder / "keys.json"
    made = [new_key(f"caller{number}", None, None, roles) for number in range(count)]
    if made:
        write_keys(path, [*read_keys(path), *(record for _, record in made)])
    return [f"Bearer {key}" for key, _ in made]


async def new_session(port: int, authorization: str) -> str:
    """The id of a session that is open, and not initialized further."""
    answer = await posted(port, authorization, INITIALIZE)
    return answer.partition("mcp-session-id: ")[2].partition("\r\n")[0]


async def subscribe(port: int, authorization: str) -> None:
    """Open a session that subscribes to a resource, and has no stream on which it would hear of it."""
    session = await new_session(port, authorization)
    subscription = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "note://a//a"}}
    for body in ({"jsonrpc": "2.0", "method": "notifications/initialized"}, subscription):
        answer = await posted(port, authorization, body, f"Mcp-Session-Id: {session}\r\n")
        assert answer.split()[1] in ("200", "202"), answer


async def posted(port: int, authorization: str, body: Body, more: str = "") -> str:
    """The head of the answer to a message on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    head += f"Accept: application/json, text/event-stream\r\nAuthorization: {authorization}\r\n{more}"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    writer.close()
    return answer


async def flood_for_ever(flood: Flood, port: int, credentials: list[str]) -> None:
    """Send what is to be sent, on all connections, until SIGTERM; then tell how often each status came."""
    statuses: Counter[int] = Counter()
    left: deque[asyncio.StreamWriter] = deque(maxlen=_MOST_LEFT)
    began = asyncio.get_running_loop().time()
    body = json.dumps(flood.body).encode() if flood.method == "POST" else b""
    parts = [body[at : at + flood.chunk] for at in range(0, len(body), flood.chunk)] if flood.chunk else []
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])

    async def repeat(authorization: str) -> None:
        head = (
            f"{flood.method} {flood.path} HTTP/1.1\r\nHost: {flood.host}:{port}\r\nContent-Type: application/json\r\n"
        )
        head += "Accept: application/json, text/event-stream\r\n"
        head += "" if flood.has_fast_path else "Last-Event-ID: x\r\n"
        framing = "Transfer-Encoding: chunked" if flood.chunk else f"Content-Length: {len(body)}"
        head += f"{framing}\r\n" if body else ""
        head += f"Authorization: {authorization}\r\n" if authorization else ""
        if flood.has_session:
            head += f"Mcp-Session-Id: {await new_session(port, authorization)}\r\n"
        if flood.path == "/mcp" and not flood.has_session and "_meta" in flood.body["params"]:
            head += f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {flood.body['method']}\r\n"
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=8 * MIB)
                try:
                    while True:
                        if flood.leaves_after is not None:
                            writer.write((f"{head}\r\n".encode() + body)[: flood.leaves_after])
                            await asyncio.sleep(0)
                            statuses[0] += 1
                            left.append(writer)
                            break
                        await send(writer, f"{head}\r\n".encode())
                        for _ in range(flood.pipelined):
                            statuses[await answered(reader)] += 1
                        if flood.is_dropped:
                            break
                finally:
                    if not flood.stays:
                        writer.transport.abort()
            except (OSError, asyncio.IncompleteReadError):
                statuses[0] += 1
                await asyncio.sleep(0.001)

    async def send(writer: asyncio.StreamWriter, head: bytes) -> None:
        if not flood.pause:
            writer.write((head + (chunks if flood.chunk else body)) * flood.pipelined)
            return
        writer.write(head)
        for at in range(len(body)):
            writer.write(body[at : at + 1])
            await asyncio.sleep(flood.pause)

    async def answered(reader: asyncio.StreamReader) -> int:
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        if not flood.is_dropped:
            _, found, rest = head.lower().partition(b"content-length: ")
            left = int(rest.split(b"\r\n")[0]) if found else 0
            while left:
                left -= len(await reader.read(min(left, 1000 if flood.is_slow_to_read else left)))
                if flood.is_slow_to_read:
                    await asyncio.sleep(0.01)
        return status

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    for _ in range(flood.subscribed):
        await subscribe(port, credentials[0])
    tasks = [asyncio.create_task(repeat(credentials[n % len(credentials)])) for n in range(flood.connections)]
    await asyncio.sleep(SETTLES)
    print("begun", flush=True)
    await stop.wait()
    for task in tasks:
        task.cancel()
    seconds = asyncio.get_running_loop().time() - began
    print(f"{dict(statuses)} in {seconds:.0f} s")


async def main(names: list[str]) -> int:
    missed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            try:
                print(f"{name}: held; {await measured(name, Path(place))}", flush=True)
            except AssertionError as error:
                missed += 1
                print(f"{name}: MISSED; {error}", flush=True)
    return missed


if __name__ == "__main__" and sys.argv[1:2] == ["--flood"]:
    asyncio.run(flood_for_ever(FLOODS[sys.argv[2]], int(sys.argv[3]), sys.argv[4:]))
elif __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:] or list(FLOODS))))
