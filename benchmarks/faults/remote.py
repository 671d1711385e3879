"""Remote servers that send too much, or refuse their credentials."""

from __future__ import annotations

import asyncio
import gzip
import time
from pathlib import Path

from support.harness import lean
from support.remote_server import Request, remote_server

from benchmarks.faults.figures import Figure
from benchmarks.faults.programs import Memory, program

MIB = 1024 * 1024


async def gzip_bomb(folder: Path) -> list[Figure]:
    """A response of one MiB that unpacks to one GiB."""
    fault = "a gzip bomb of 1 GiB"
    bomb = gzip.compress(b"\0" * (1024 * MIB), 9)

    async def misbehave(request: Request) -> bool:
        if request.is_bad:
            await request.respond(200, bomb, content_type="application/json", content_encoding="gzip")
        return request.is_bad

    async with remote_server(misbehave) as server, program(folder, bomb={"url": server.url}) as running:
        async with Memory(running.watched) as memory:
            error = await running.client.error("tools/call", {"name": "bomb:bad"})
        await running.client.call("bomb:echo")
    return [
        Figure(fault, "refused", True, "compressed" in error["message"], exact=True),
        Figure(fault, "memory grows by", 8, memory.grown, "MiB"),
    ]


async def refused_credentials(folder: Path) -> list[Figure]:
    """401 to everything, for half a minute and a little, while it is called every second."""
    fault, watched = "401 from a remote server", 33.0

    async def misbehave(request: Request) -> bool:
        arrivals.append(time.monotonic())
        await request.respond(401)
        return True

    arrivals: list[float] = []
    async with remote_server(misbehave) as server:
        servers = {"locked": {"url": server.url}, "other": lean()}
        async with program(folder, "--no-strict", **servers) as running:
            end = time.monotonic() + watched
            while time.monotonic() < end:
                error = await running.client.error("tools/call", {"name": "locked:echo"})
                await asyncio.sleep(1)
    attempts = [when for before, when in zip([0.0, *arrivals], arrivals, strict=False) if when - before > 1]
    within = sum(when < attempts[0] + 30 for when in attempts)
    is_told = "server 'locked': " in error["message"] and "authentication failed (HTTP 401)" in error["message"]
    return [
        Figure(fault, "attempts in 30 s", 1, within, note=f"{len(attempts)} in {watched:.0f} s"),
        Figure(fault, "calls say which server, and why", True, is_told, exact=True),
    ]
