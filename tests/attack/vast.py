"""Attacks by servers that say more than anybody can use: of themselves, in lists, pages, answers and on stderr."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, suppress
from typing import Any

from support.harness import LEAN_CHILD, config, lean
from support.remote_server import Request, remote_server
from support.wire import LEGACY, text_of, until_answered

from attack.rooms import Hub, Machine, hub_of_its_own
from attack.table import attack

HEADING = "Servers that say too much"
_VAST_CHILD = LEAN_CHILD.with_name("vast_child.py")
_FOR_MCP = {"Accept": "application/json, text/event-stream"}
_ABOUT = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


def _vast(kind: str, **options: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", str(_VAST_CHILD), kind, json.dumps(options)]}


async def _changed(hub: Hub, times: int) -> None:
    """The server's list is another so often, and was read each time."""

    async def listed() -> int:
        answer = await hub.call(None, None, "vast:listed")
        assert answer.status_code == 200, f"{answer.status_code}: {answer.text[:200]}"
        return int(text_of(answer.json())["listed"])

    for _ in range(times):
        before = await listed()
        await hub.call(None, None, "vast:again")
        await until_answered(listed, lambda count: count > before)  # noqa: B023
        await asyncio.sleep(0.5)
        assert (await hub.call(None, None, "good:echo")).status_code == 200, "another server is disturbed"


@attack(
    "server-capabilities",
    "80,000 MIME types of two servers, 8 MB of capabilities that nobody knows",
    "16 KiB of each at most, in handshakes that stay small",
    room="machine",
)
async def capabilities(machine: Machine) -> str:
    servers = config(good=lean(), a=_vast("types", name="a"), b=_vast("types", name="b"), c=_vast("experimental"))
    async with hub_of_its_own(machine, servers) as hub:
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _ABOUT}
        async with hub.watched(slowest=2.0, grows_by=64):
            for _ in range(5):
                answer = await hub.ask("POST", "/mcp", json=body, headers=_FOR_MCP)
                assert len(answer.content) < 32 * 1024, f"a handshake of {len(answer.content) // 1024} KiB"
                client = await hub.connect(None)
                size = len(json.dumps(client.introduction))
                assert size < 32 * 1024, f"a handshake of {size // 1024} KiB"
    return "handshakes under 32 KiB"


@attack(
    "server-changing",
    "a list of 8 MB with invisible characters that becomes another 3 times, with pins",
    "looked through soon; few lines in the log",
    room="machine",
)
async def changing(machine: Machine) -> str:
    pins = machine.project / "none-pinned.json"
    pins.write_text('{"format": 2, "servers": {}}')
    servers = config(good=lean(), vast=_vast("hidden"))
    async with hub_of_its_own(machine, servers, f'pins = "{pins}"\n') as hub:
        before = len(hub.log)
        async with hub.watched(slowest=2.0, grows_by=160):
            await _changed(hub, 3)
        written = len(hub.log) - before
        assert written < 40_000, f"{written // 1000} KB of log"
    return "others go on; less than 40 KB of log"


@attack(
    "server-headers",
    "a list of 8 MB whose schemas name 130,000 arguments as headers",
    "others go on between the tools",
    room="machine",
)
async def headers(machine: Machine) -> str:
    async with (
        hub_of_its_own(machine, config(good=lean(), vast=_vast("headers", page_size=40))) as hub,
        hub.watched(slowest=2.0, grows_by=256),
    ):
        await _changed(hub, 2)
    return "others go on"


@attack(
    "server-words",
    "tool search over a list of 8 MB of words that becomes another each time",
    "beginnings alone are searched",
    room="machine",
)
async def words(machine: Machine) -> str:
    servers = config(good=lean(), vast=_vast("words"))
    groups = {"default": {"servers": ["good", "vast"]}, "search": {"servers": ["vast"], "tool_search": True}}
    async with (
        hub_of_its_own(machine, servers, groups=groups) as hub,
        hub.watched(slowest=2.0, grows_by=320),
        hub.bounded(peak=400),
    ):
        for _ in range(2):
            await _changed(hub, 1)
            answer = await hub.call(None, "search", "search_tools", query="zap17 zap18")
            assert answer.status_code == 200, f"{answer.status_code}"
    return "found at once; memory stays"


@attack(
    "server-page",
    "an app's page whose first element has 4,000,000 attributes",
    "64 KiB are looked through",
    room="machine",
)
async def page(machine: Machine) -> str:
    servers = config(good=lean(), vast=_vast("page", resources=[{"uri": "ui://a/page", "name": "p"}]))
    async with hub_of_its_own(machine, servers) as hub, hub.watched(slowest=2.0, grows_by=256), hub.bounded(peak=400):
        for _ in range(3):
            answer = await hub.json_api(None, "resources/read", {"uri": "ui://vast/a/page"})
            assert answer.status_code == 200, f"{answer.status_code}: {answer.text[:80]}"
    return "read at once; memory stays"


@attack(
    "server-stderr",
    "2,000,000 empty lines on stderr",
    "read at 100,000 a second; few are shown",
    room="machine",
)
async def stderr(machine: Machine) -> str:
    async with hub_of_its_own(machine, config(good=lean(), loud=lean())) as hub:
        before = len(hub.log)
        async with hub.watched(slowest=2.0):
            flood = asyncio.create_task(hub.call(None, None, "loud:flood", lines=2_000_000, length=0))
            for _ in range(20):
                assert (await hub.call(None, None, "good:echo")).status_code == 200, "another server is disturbed"
                await asyncio.sleep(0.1)
            flood.cancel()
            await asyncio.gather(flood, return_exceptions=True)
        report = (await hub.ask("GET", "/status")).json()
        assert report["servers"]["loud"]["dropped_stderr_lines"] > 50_000, "there was no flood"
        written = len(hub.log) - before
        assert written < 100_000, f"{written // 1000} KB of log"
    return "others go on; less than 100 KB of log"


_SLOWLY_FOUND = "a" * 10 + "b" + "a" * 10
_UNAPPROVED = [
    {"uriTemplate": f"x://{{a}}{_SLOWLY_FOUND}{{c{number}}}", "name": f"t{number}"} for number in range(1000)
]


@attack(
    "server-templates",
    "1000 templates that are not approved, against an address of 1 MB",
    "compared soon, or not at all",
    room="machine",
)
async def templates(machine: Machine) -> str:
    path, pins = machine.project / "templates.json", machine.project / "no-templates.json"
    path.write_text(json.dumps(config(s=lean())))
    await machine.run("pin", str(path), "--file", str(pins))
    settings = f'pins = "{pins}"\non_pin_mismatch = "block"\n'
    async with (
        hub_of_its_own(machine, config(s=lean(templates=_UNAPPROVED)), settings) as hub,
        hub.watched(slowest=2.0),
    ):
        for uri in ("x://s/" + "a" * 1_000_000, "x://s/" + "a" * 8000, "x:" + "/a" * 400_000):
            answer = await hub.json_api(None, "resources/read", {"uri": uri})
            assert answer.status_code in (200, 400), f"{answer.status_code}"
    return "read or refused at once"


_BYTES = {
    "comments": b": x\n\n",
    "events without data": b"id: 1\n\n",
    "empty lines": b"\n",
    "notifications": b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}\n\n',
}
_ENDLESS = {**_BYTES, "spaces": b" ", "a value": b"9"}


@attack(
    "server-endless",
    "answers without an end: SSE comments, empty events, empty lines, notifications, spaces, one number",
    "they end with the deadline; others go on",
    room="machine",
)
async def endless(machine: Machine) -> str:
    async with AsyncExitStack() as stack:
        # a server each, for a breaker lets no more through to one that has not answered a few times
        remotes = {f"r{n}": await stack.enter_async_context(remote_server()) for n in range(len(_ENDLESS))}
        servers = config(good=lean(), **{key: {"url": remote.url} for key, remote in remotes.items()})
        hub = await stack.enter_async_context(hub_of_its_own(machine, servers, "call_timeout = 3\n"))
        for (key, remote), (name, part) in zip(remotes.items(), _ENDLESS.items(), strict=True):
            assert (await hub.call(None, None, f"{key}:echo")).status_code == 200, f"{name}: not called before"
            before = remote.counts["tools/call"]
            remote.misbehave = _saying(part, is_stream=name in _BYTES)
            async with hub.watched(slowest=2.0, grows_by=96):
                calls = [asyncio.create_task(hub.call(None, None, f"{key}:echo")) for _ in range(4)]
                while not all(call.done() for call in calls):
                    assert (await hub.call(None, None, "good:echo")).status_code == 200, f"{name}: disturbed"
                    await asyncio.sleep(0.05)
            for call in calls:
                assert "error" in call.result().text.lower(), f"{name}: answered"
            assert remote.counts["tools/call"] >= before + len(calls), f"{name}: not asked"
    return f"an error for each call of {len(_ENDLESS)} servers"


def _saying(part: bytes, *, is_stream: bool) -> Any:
    kind = "text/event-stream" if is_stream else "application/json"
    chunk = part * (16384 // len(part))

    async def misbehave(request: Request) -> bool | None:
        if request.method != "tools/call":
            return None
        with suppress(ConnectionError):
            await request.start(200, content_type=kind, transfer_encoding="chunked")
            while not request.writer.is_closing():
                request.writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await request.writer.drain()
                await asyncio.sleep(0)
        return True

    return misbehave
