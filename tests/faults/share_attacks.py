"""Attacks of one caller, or of one address without a key, on what all share: each against a real hub, over HTTP.

`ATTACKS` is the table, and `held` runs one of them. An attack is given a `Hub` that runs, tries what its first line
says, and returns what it got in a few words; it raises an AssertionError where it has got through.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
from support.harness import config, lean

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys
from fastmcp_aggregator.access.roles import ROLES

MIB = 1024**2
QUICK = {"name": "a:echo"}
LASTING = {"name": "a:hold"}
FLOOD = "--flood"
"""What a process is given that floods a hub: then its port and the credentials."""
HEALTH = "--health"
"""What a process is given that asks how a hub is: then its port and its process id."""
_START = 30.0


@dataclass
class Answer:
    """What came back on a connection: `status` is 0 where nothing did."""

    status: int = 0
    body: bytes = b""


@dataclass
class Hub:
    """A hub that runs as a process, with keys of two callers; `ann` is the one who attacks."""

    port: int
    process: psutil.Process
    ann: dict[str, str]
    bob: dict[str, str]
    folder: Path
    is_measured: bool = False
    """Whether times count."""
    open: list[asyncio.StreamWriter] = field(default_factory=list)
    """Connections of the attack, closed after it."""

    async def connect(self, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0), limit=8 * MIB)
        self.open.append(writer)
        return reader, writer

    def head(self, line: str, headers: dict[str, str], length: int | None = None) -> bytes:
        lines = [f"{line} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *(f"{k}: {v}" for k, v in headers.items())]
        lines += [] if length is None else [f"Content-Length: {length}"]
        return "\r\n".join([*lines, "", ""]).encode()

    async def send(
        self, line: str, headers: dict[str, str], body: bytes | None = None, address: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request on a connection of its own, and do not wait for its answer."""
        reader, writer = await self.connect(address)
        writer.write(self.head(line, headers, None if body is None else len(body)) + (body or b""))
        return reader, writer

    async def ask(
        self, line: str, headers: dict[str, str] | None = None, body: Any = None, address: str = "127.0.0.1"
    ) -> Answer:
        """The answer to one request on a connection of its own."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Connection": "close", **({} if body is None else {"Content-Type": "application/json"})}
        try:
            reader, writer = await self.send(line, {**sent, **(headers or {})}, content, address)
        except OSError:
            return Answer()
        try:
            return await asyncio.wait_for(read_answer(reader), 20)
        except (OSError, TimeoutError):
            return Answer()
        finally:
            writer.close()
            self.open.remove(writer)

    async def call(self, headers: dict[str, str], params: Any, **options: Any) -> Answer:
        return await self.ask("POST /mcp/tools/call", headers, params, **options)

    def memory(self) -> int:
        return self.process.memory_info().rss

    async def settle(self, seconds: float) -> None:
        """Let an attack go on for a while, where times count."""
        if self.is_measured:
            await asyncio.sleep(seconds)


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    found = re.match(rb"HTTP/1.1 (\d+)", head)
    length = re.search(rb"content-length: (\d+)", head.lower())
    body = await reader.readexactly(int(length[1])) if length else b""
    return Answer(int(found[1]) if found else 0, body)


@dataclass
class Watched:
    """What bob and a load balancer saw for a while."""

    seconds: list[float]
    statuses: Counter[int]
    health: list[float]

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[98]


async def watch(hub: Hub, address: str = "127.0.0.1") -> Watched:
    """Bob's calls, one after the other, and `/health` between them."""
    seen = Watched([], Counter(), [])
    for number in range(200 if hub.is_measured else 50):
        began = time.perf_counter()
        answer = await hub.call(hub.bob, QUICK, address=address)
        seen.seconds.append(time.perf_counter() - began)
        seen.statuses[answer.status] += 1
        if sum(seen.statuses.values()) - seen.statuses[200] > 2:
            break
        if number % 10 == 0:
            began = time.perf_counter()
            assert (await hub.ask("GET /health", address=address)).status == 200
            seen.health.append(time.perf_counter() - began)
    return seen


async def compared(hub: Hub, attack: Callable[[], Awaitable[object]], address: str = "127.0.0.1") -> str:
    """Bob's p99 before and during an attack; he is refused nothing."""
    quiet = await watch(hub, address=address)
    await attack()
    under = await watch(hub, address=address)
    assert set(under.statuses) == {200}, f"{dict(under.statuses)}, after {under.seconds[-1]:.1f} s"
    told = f"p99 {quiet.p99 * 1000:.1f} → {under.p99 * 1000:.1f} ms, /health ≤ {max(under.health) * 1000:.0f} ms"
    assert set(under.statuses) == {200}, f"{told}, {dict(under.statuses)}"
    assert not hub.is_measured or under.p99 < max(3 * quiet.p99, 0.02), told
    return told


@asynccontextmanager
async def running_hub(
    folder: Path, *, entries: dict[str, Any] | None = None, groups: Any = None, keys: bool = True, **settings: Any
) -> AsyncIterator[Hub]:
    """A hub as a process of its own, with these settings."""
    ann, bob = new_key("ann", None, None), new_key("bob", None, None, ROLES)
    write_keys(folder / "keys.json", [ann[1], bob[1]])
    (folder / "config.json").write_text(json.dumps(config(**(entries or {"a": lean(), "b": lean()}))))
    chosen = {
        "rate_limit": 0,
        "dashboard": "false",
        **({"keys_file": folder / "keys.json"} if keys else {}),
        **settings,
    }
    command = [sys.executable, "-m", "fastmcp_aggregator", str(folder / "config.json"), "--transport", "http"]
    command += ["--port", "0", "--no-strict"]
    if groups is not None:
        (folder / "groups.json").write_text(json.dumps(groups))
        command += ["--groups", str(folder / "groups.json")]
    environment = {**os.environ, **{f"FASTMCP_AGGREGATOR_{k.upper()}": str(v) for k, v in chosen.items()}}
    log = (folder / "log").open("wb")
    process = await asyncio.create_subprocess_exec(*command, stderr=log, stdout=log, env=environment)
    try:
        port = await _port(folder / "log")
        of = [{"Authorization": f"Bearer {key[0]}"} for key in (ann, bob)]
        hub = Hub(port, psutil.Process(process.pid), *of, folder)
        while (await hub.ask("GET /ready")).status != 200 or (await hub.call(hub.bob, QUICK)).status != 200:
            await asyncio.sleep(0.05)
        yield hub
        for writer in hub.open:
            writer.close()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        log.close()


async def _port(log: Path) -> int:
    async with asyncio.timeout(_START):
        while not (found := re.search(rb"http://127\.0\.0\.1:(\d+)", log.read_bytes())):
            await asyncio.sleep(0.02)
    return int(found[1])


async def bodies_never_sent(hub: Hub) -> str:
    """1500 bodies of 4 MiB are announced, and none is sent."""

    async def attack() -> None:
        for _ in range(1500):
            with suppress(OSError):
                _, writer = await hub.connect()
                writer.write(hub.head("POST /mcp/tools/call", {**hub.ann, "Content-Type": "application/json"}, 4 * MIB))
        await hub.settle(1)

    return await compared(hub, attack)


async def half_bodies(hub: Hub) -> str:
    """200 bodies of 4 MiB are sent but for their last byte."""

    async def attack() -> None:
        for _ in range(200):
            with suppress(OSError):
                _, writer = await hub.connect()
                head = hub.head("POST /mcp/tools/call", {**hub.ann, "Content-Type": "application/json"}, MIB)
                writer.write(head + b" " * (MIB - 1))
        await hub.settle(2)

    return await compared(hub, attack)


async def half_heads(hub: Hub) -> str:
    """4000 heads are begun and not ended."""

    async def attack() -> None:
        for _ in range(4000):
            with suppress(OSError):
                _, writer = await hub.connect()
                writer.write(b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-A: ")
        await hub.settle(1)

    return await compared(hub, attack)


async def hanging_calls(hub: Hub) -> str:
    """400 calls of one server that hang until their deadline."""

    async def attack() -> None:
        for _ in range(400):
            await hub.send(
                "POST /mcp/tools/call", {**hub.ann, "Content-Type": "application/json"}, json.dumps(LASTING).encode()
            )
        await hub.settle(2)

    return await compared(hub, attack)


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


async def many_sessions(hub: Hub) -> str:
    """3000 sessions are opened."""
    opened = Counter[int]()

    async def attack() -> None:
        for _ in range(30):
            answers = await asyncio.gather(
                *(hub.ask("POST /mcp", {**hub.ann, **ACCEPT}, INITIALIZE) for _ in range(100))
            )
            opened.update(a.status for a in answers)

    before = hub.memory()
    told = await compared(hub, attack)
    return f"{told}; {dict(opened)}, {(hub.memory() - before) // MIB} MiB"


async def many_streams(hub: Hub) -> str:
    """2500 streams of the old transport are opened."""

    async def attack() -> None:
        for _ in range(2500):
            with suppress(OSError):
                await hub.send("GET /mcp/sse", {**hub.ann, "Accept": "text/event-stream"})
        await hub.settle(3)

    before = hub.memory()
    told = await compared(hub, attack)
    return f"{told}; {(hub.memory() - before) // MIB} MiB"


async def slow_readers(hub: Hub) -> str:
    """400 large answers are asked for, and not read."""

    async def attack() -> None:
        body = json.dumps({"name": "a:echo", "arguments": {"text": "x" * 2 * MIB}}).encode()
        for _ in range(400):
            with suppress(OSError):
                _, writer = await hub.send(
                    "POST /mcp/tools/call", {**hub.ann, "Content-Type": "application/json"}, body
                )
                writer.transport.pause_reading()
        await hub.settle(5)

    before = hub.memory()
    told = await compared(hub, attack)
    return f"{told}; {(hub.memory() - before) // MIB} MiB"


def _nested(opening: str, closing: str, size: int) -> str:
    count = size // (len(opening) + len(closing))
    return opening * count + closing * count


ROOM = 4 * MIB - 200
LARGE = {
    "lists in lists": "[" * ROOM,
    "lists in lists, ended": _nested("[", "]", ROOM),
    "objects in objects": _nested('{"a":', "}", ROOM - 100).replace("{}", "{"),
    "many numbers": "[" + "1," * (ROOM // 2 - 10) + "1]",
    "many numbers within the limit": "[" + "1," * 49_000 + "1]",
    "many lists": "[" + "[]," * (ROOM // 3 - 10) + "[]]",
    "many objects within the limit": "[" + '{"a":1},' * 16_000 + "1]",
    "one name many times": "{" + '"a":1,' * (ROOM // 6 - 10) + '"a":1}',
    "one name 40000 times": "{" + '"a":1,' * 40_000 + '"a":1}',
    "a long number": "9" * ROOM,
    "many long numbers": "[" + ("9" * 990 + ",") * (ROOM // 1000) + "1]",
    "a long text": '"' + "x" * ROOM + '"',
    "a text of quotes": '"' + '\\"' * (ROOM // 2) + '"',
    "a text of escapes": '"' + "\\u0041" * (ROOM // 6) + '"',
    "halves of pairs": '"' + "\\ud800" * (ROOM // 6) + '"',
    "white space": " " * ROOM + "1",
    "texts": "[" + '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",' * 48_000 + "1]",
    "long texts of the pattern": "[" + ('"' + "a" * 4000 + '!",') * 1000 + "1]",
}
"""What a caller sends as the arguments' `a`, up to 4 MiB."""


async def large_inputs(hub: Hub) -> str:
    """Each kind of 4 MiB at each entrance: `/health` is kept waiting for 50 ms at most, and memory for 64 MiB.

    All of them one after another leave holes in memory; what they add together has a limit of its own.
    """
    worst, most, together = Waits(), 0, 0
    async with probe(hub) as measured:
        await measured(asyncio.sleep(0.5))
        before = hub.memory()
        for name, value in LARGE.items():
            for tool in ("a:echo", "s:echo"):
                for entrance in ("JSON", "modern"):
                    params = f'{{"name": "{tool}", "arguments": {{"a": {value}}}'
                    free = hub.memory()
                    found = await measured(_send_large(hub, entrance, tool, params))
                    worst = max(worst, replace(found, about=f"{name}, {tool}, {entrance}"), key=lambda each: each.work)
                    most = max(most, hub.memory() - free)
                    together = max(together, hub.memory() - before)
    told = f"/health waits for {worst}, {most // MIB} MiB more for one, {together // MIB} for all"
    assert not hub.is_measured or worst.work < 0.05, told
    assert most < 64 * MIB, told
    assert together < 96 * MIB, told
    return told


@dataclass
class Waits:
    """The longest that `/health` was waited for in a while, in seconds; `work` is what the hub did of it, `wall` the
    whole, and `idle` the longest that a process was waited for which has nothing to do. The rest is the machine's.
    """

    work: float = 0.0
    wall: float = 0.0
    idle: float = 0.0
    about: str = "nothing"

    def __str__(self) -> str:
        work, wall, idle = (f"{seconds * 1000:.0f} ms" for seconds in (self.work, self.wall, self.idle))
        return f"{work} of the hub's work ({self.about}; {wall} by the clock, an idle process {idle})"


@asynccontextmanager
async def probe(hub: Hub) -> AsyncIterator[Callable[[Coroutine[Any, Any, None]], Awaitable[Waits]]]:
    """Measures while something is done, in a process of its own, so that what attacks does not count."""
    command = [sys.executable, __file__, HEALTH, str(hub.port), str(hub.process.pid)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def measured(attack: Coroutine[Any, Any, None]) -> Waits:
        stdin.write(b"begin\n")
        await stdout.readline()
        await attack
        stdin.write(b"end\n")
        return Waits(*json.loads(await stdout.readline()))

    try:
        yield measured
    finally:
        stdin.close()
        await process.wait()


def watch_health(port: int, pid: int) -> None:
    """From line to line of stdin: ask for `/health` again and again, and tell the longest waits."""
    idle, echo = socket.socketpair()
    if os.fork() == 0:
        idle.close()
        while data := echo.recv(1):
            echo.send(data)
        os._exit(0)
    echo.close()
    request = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    hub = socket.create_connection(("127.0.0.1", port))
    while sys.stdin.readline():
        print("begun", flush=True)
        longest = [0.0, 0.0, 0.0]
        while not select.select([sys.stdin], [], [], 0)[0]:
            worked, began = cpu_of(pid), time.perf_counter()
            hub.sendall(request)
            assert b"200 OK" in hub.recv(65536)
            waits = [cpu_of(pid) - worked, time.perf_counter() - began, 0.0]
            began = time.perf_counter()
            idle.send(b"x")
            idle.recv(1)
            waits[2] = time.perf_counter() - began
            longest = list(map(max, longest, waits))
        sys.stdin.readline()
        print(json.dumps(longest), flush=True)


def cpu_of(pid: int) -> float:
    """The seconds that all threads of a process have run."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


async def _send_large(hub: Hub, entrance: str, tool: str, params: str) -> None:
    if entrance == "JSON":
        await hub.ask("POST /mcp/tools/call", {**hub.ann, "Content-Type": "application/json"}, f"{params}}}".encode())
        return
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}, "_meta": {json.dumps(meta)}}}}}'
    headers = {**hub.ann, **ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
    await hub.ask("POST /mcp", headers, body.encode())


async def flood(hub: Hub) -> str:
    """One calls as fast as it can, on 8 connections, from a process of its own."""
    flooding: list[asyncio.subprocess.Process] = []

    async def attack() -> None:
        command = [sys.executable, __file__, FLOOD, str(hub.port), hub.ann["Authorization"]]
        flooding.append(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))
        assert flooding[0].stdout is not None
        async with asyncio.timeout(_START):  # it is some time before it has imported what it needs
            await flooding[0].stdout.readline()

    try:
        told = await compared(hub, attack)
        assert flooding[0].returncode is None
        return told
    finally:
        for process in flooding:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def call_for_ever(port: int, authorization: str) -> None:
    """Call as fast as possible on 8 connections, which stay open; says so once calls are refused."""
    body = json.dumps(QUICK)
    head = f"POST /mcp/tools/call HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: {authorization}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"

    async def repeat() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        is_refused = False
        while True:
            writer.write((head + body).encode())
            answer = await read_answer(reader)
            if answer.status == 429 and not is_refused:
                is_refused = True
                print("refused", flush=True)

    await asyncio.gather(*(repeat() for _ in range(8)))


async def headers_that_lie(hub: Hub) -> str:
    """Headers and queries that say that a request is none, or a stream: 15 times each way, where 8 may be let in."""
    lies: list[tuple[str, dict[str, str]]] = [
        ("/mcp/tools/call?session_id=x", {}),
        ("/mcp/tools/call", {"Mcp-Session-Id": "x"}),
        ("/mcp/tools/call", {"Mcp-Method": "subscriptions/listen", "MCP-Protocol-Version": "2026-07-28"}),
        ("/mcp/tools/call", {"X-HTTP-Method-Override": "GET"}),
        ("/groups/red/mcp/tools/call", {"Mcp-Method": "subscriptions/listen"}),
        ("//mcp/tools/call?session_id=x", {}),
    ]
    for path, headers in lies:
        for _ in range(15):
            sent = {**hub.ann, "Content-Type": "application/json", **headers}
            await hub.send(f"POST {path}", sent, json.dumps(LASTING).encode())
    await asyncio.sleep(1)
    status = json.loads((await hub.ask("GET /status", hub.bob)).body)
    requests, server = status["shares"]["requests"], status["servers"]["a"]
    told = f"{requests['taken']} let in, {server['in_flight']} running, {requests['refused']} refused"
    assert (requests["taken"], server["in_flight"]) == (8, 1), told
    return told


async def groups_without_a_key(hub: Hub) -> str:
    """Existing and other groups, and groups in groups, are asked for without a key."""
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        for path in ("mcp", "mcp/tools/list", "mcp/sse", "mcp/messages", "", "x"):
            seen = [await hub.ask(f"{method} /groups/{group}/{path}") for group in ("red", "none")]
            assert seen[0].status == seen[1].status, f"{method} {path}: {seen[0].status}, {seen[1].status}"
            assert seen[0].body.replace(b"groups/red", b"groups/none") == seen[1].body
    log = hub.folder / "log"
    size, before = log.stat().st_size, hub.memory()
    for depth in (2, 20, 140, 1000):
        assert (await hub.ask("GET " + "/groups/default" * depth + "/mcp")).status in (401, 404)
    grown = log.stat().st_size - size
    assert grown < 1000, f"{grown} bytes of log"
    assert hub.memory() - before < 8 * MIB
    return "the same answers; nothing nested"


async def pages_of_other_ports(hub: Hub) -> str:
    """A page of another port of this machine calls a tool, as JSON and as text."""
    for origin in ("http://127.0.0.1:1", "http://localhost:1", "http://localhost", "https://127.0.0.1", "null"):
        for kind in ("application/json", "text/plain"):
            for path in ("/mcp", "/mcp/tools/call", "/mcp/messages"):
                headers = {**hub.ann, "Origin": origin, "Content-Type": kind}
                status = (await hub.ask(f"POST {path}", headers, json.dumps(QUICK).encode())).status
                assert status == 403, f"{origin}, {kind}, {path}: {status}"
    status = (await hub.ask("POST /mcp/tools/call", {**hub.ann, "Content-Type": "text/plain"}, b"{}")).status
    assert status == 415, f"text: {status}"
    return "403, and 415 for text"


async def heads_without_end(hub: Hub) -> str:
    """A head of 100 MB is sent without a key."""
    before, sent = hub.memory(), 0
    _, writer = await hub.connect()
    writer.write(b"GET /health HTTP/1.1\r\n")
    with suppress(OSError):
        while sent < 100 * MIB and not writer.is_closing():
            writer.write(b"X-A: " + b"y" * 60_000 + b"\r\n")
            sent += 60_000
            await writer.drain()
    told = f"closed after {sent // MIB} MiB, {(hub.memory() - before) // MIB} MiB of memory"
    assert sent < 50 * MIB, told
    assert hub.memory() - before < 16 * MIB, told
    return told


async def forwarded_addresses(hub: Hub) -> str:
    """Without a key, one address says with each request that it is another one: 15 calls that hang, where 8 may be."""
    for number in range(15):
        headers = {"X-Forwarded-For": f"192.0.2.{number}", "Content-Type": "application/json"}
        await hub.send("POST /mcp/tools/call", headers, json.dumps(LASTING).encode(), address="127.0.0.2")
    await asyncio.sleep(1)
    requests = json.loads((await hub.ask("GET /status")).body)["shares"]["requests"]
    told = f"{requests['taken']} let in, of {requests['callers']} callers"
    assert (requests["taken"], requests["callers"]) == (8, 1), told
    assert (await hub.call({}, {"name": "b:echo"})).status == 200
    return told


async def a_name_alone(hub: Hub) -> str:
    """A tool is named without its server, while the server that was meant is down."""
    good = psutil.Process(json.loads((await hub.ask("GET /status", hub.bob)).body)["servers"]["a"]["pid"])
    await hub.send("POST /mcp/tools/call", {**hub.bob, "Content-Type": "application/json"}, b'{"name": "a:leave"}')
    answers = Counter[int]()
    for _ in range(20):
        answers[(await hub.ask("POST /groups/red/mcp/tools/call", hub.bob, {"name": "echo"})).status] += 1
    names = json.loads((await hub.ask("POST /groups/red/mcp/tools/list", hub.bob)).body)["tools"]
    assert not good.is_running() or good.status() == psutil.STATUS_ZOMBIE or answers
    assert set(answers) == {400}, dict(answers)
    assert not [tool for tool in names if tool["name"] in ("echo", "b:echo")], names
    return f"{dict(answers)}"


@dataclass(frozen=True)
class Attack:
    """What is tried, and the settings of the hub that it is tried on."""

    run: Callable[[Hub], Awaitable[str]]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def about(self) -> str:
        return (self.run.__doc__ or "").partition("\n")[0]


SCHEMA = {"items": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}, {"pattern": "^(a|aa)+$"}]}}
CHECKING = {
    "validate_arguments": "true",
    "entries": {
        "a": lean(),
        "s": lean(tool_extra={"inputSchema": {"type": "object", "properties": {"a": SCHEMA}}}),
    },
}
FEW = {"max_concurrent_requests": 1, "max_waiting_requests": 7, "groups": {"red": {"servers": ["a", "b"]}}}
BARE = {"groups": {"red": {"servers": ["a", "b"], "tools": ["echo", "b:pid"]}}}
ATTACKS = {
    "bodies that are announced and not sent": Attack(bodies_never_sent),
    "bodies without their last byte": Attack(half_bodies),
    "heads that are not ended": Attack(half_heads),
    "calls that hang": Attack(hanging_calls),
    "sessions": Attack(many_sessions),
    "streams": Attack(many_streams),
    "answers that are not read": Attack(slow_readers),
    "a flood of calls": Attack(flood, {"rate_limit": 100, "callers": '{"bob": {"rate_limit": 0}}'}),
    "inputs of 4 MiB": Attack(large_inputs, CHECKING),
    "headers that lie": Attack(headers_that_lie, FEW),
    "groups without a key": Attack(groups_without_a_key, FEW),
    "pages of other ports": Attack(pages_of_other_ports),
    "heads without end": Attack(heads_without_end),
    "forwarded addresses": Attack(forwarded_addresses, {**FEW, "keys": False}),
    "a name alone": Attack(a_name_alone, BARE),
}


async def held(name: str, folder: Path, *, is_measured: bool = False) -> str:
    """Run one attack on a hub of its own; what it got.

    `is_measured` looks at times as well, which takes a machine that has nothing else to do.

    Raises:
        AssertionError: it got through.
    """
    attack = ATTACKS[name]
    async with running_hub(folder, **attack.settings) as hub:
        hub.is_measured = is_measured
        return await attack.run(hub)


if __name__ == "__main__" and sys.argv[1:2] == [FLOOD]:
    asyncio.run(call_for_ever(int(sys.argv[2]), sys.argv[3]))
elif __name__ == "__main__" and sys.argv[1:2] == [HEALTH]:
    watch_health(int(sys.argv[2]), int(sys.argv[3]))
elif __name__ == "__main__":
    for chosen in sys.argv[1:] or ATTACKS:
        with tempfile.TemporaryDirectory() as place:
            try:
                print(f"{chosen}: held; {asyncio.run(held(chosen, Path(place), is_measured=True))}", flush=True)
            except AssertionError as error:
                print(f"{chosen}: GOT THROUGH; {error}", flush=True)
