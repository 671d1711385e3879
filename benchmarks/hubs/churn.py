"""Thousands of clients that come and go: the hub's memory, descriptors and threads stay what they are.

The clients are on the hub's socket, without bridges, which would take most of the time. Every third leaves in the
middle of a call, every fifth is of the modern era; some subscribe, set a level, and are asked for their roots.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from benchmarks.hubs.machine import Client, Machine, lean, machine
from fastmcp_aggregator.attach import greeting

AT_ONCE = 20
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "m", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
}


async def _visit(path: str, number: int) -> None:
    reader, writer = await asyncio.open_unix_connection(path, limit=4 * 1024**2)
    writer.write(greeting.line(greeting.CLIENT, folder=f"/tmp/{number % 7}", pid=1, group=None, tool_search=None))
    await reader.readline()
    is_modern = number % 5 == 0

    async def request(request_id: int, method: str, **params: Any) -> dict[str, Any]:
        params = {**params, "_meta": _META} if is_modern else params
        _send(writer, id=request_id, method=method, params=params)
        while line := await reader.readline():
            message: dict[str, Any] = json.loads(line)
            if "method" in message and "id" in message:
                _send(writer, id=message["id"], result={"roots": [{"uri": f"file:///tmp/{number % 7}"}]})
            elif message.get("id") == request_id:
                return message
        raise EOFError

    try:
        if not is_modern:
            about = {"name": f"c{number % 3}", "version": "1"}
            await request(0, "initialize", protocolVersion="2025-11-25", capabilities={"roots": {}}, clientInfo=about)
            _send(writer, method="notifications/initialized")
            await request(1, "logging/setLevel", level="error")
        await request(2, "tools/list")
        answer = await request(3, "tools/call", name="lean:echo", arguments={"number": number})
        assert f'\\"number\\": {number}' in json.dumps(answer), answer
        if number % 3 == 0:
            _send(writer, id=4, method="tools/call", params={"name": "lean:hold", "arguments": {}})
            await writer.drain()
    finally:
        writer.close()


def _send(writer: asyncio.StreamWriter, **message: Any) -> None:
    writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def _state_of(pid: int) -> dict[str, int]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    rss, threads = int(status["VmRSS"].split()[0]), int(status["Threads"])
    return {"MiB": rss // 1024, "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": threads}


async def _come_and_go(here: Machine, count: int, pause: float) -> None:
    [path], [pid] = here.root.rglob("*.sock"), here.hubs()
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with turn:
            await _visit(str(path), number)

    for part in range(10):
        await asyncio.gather(*(one(number) for number in range(part * count // 10, (part + 1) * count // 10)))
        await asyncio.sleep(pause)
        print(f"after {(part + 1) * count // 10} clients: {_state_of(pid)}, {len(here.servers())} servers", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument(
        "--pause", type=float, default=20, help="seconds between two slices, in which garbage is collected"
    )
    options = parser.parse_args()
    with machine() as here:
        config = here.config(lean=lean(), rooted=lean(asks_for_roots=True))
        client = Client(here, "attach", config, "--no-strict")
        client.initialize()
        client.request("tools/call", name="lean:echo", arguments={})
        asyncio.run(_come_and_go(here, options.clients, options.pause))
        assert "result" in client.request("tools/call", name="lean:echo", arguments={})
        client.close()


if __name__ == "__main__":
    main()
