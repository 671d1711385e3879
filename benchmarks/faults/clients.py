"""Clients that cancel, vanish, or are too many."""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import cycle, islice
from pathlib import Path

from support.harness import lean
from support.wire_http import HttpClient

from benchmarks.faults.figures import Figure, soon
from benchmarks.faults.http_calls import call, head_of, is_refused
from benchmarks.faults.programs import http_program, program

MORTAL_CLIENT = Path(__file__).parents[2] / "tests" / "support" / "programs" / "mortal_client.py"
CANCELLED = "[a] cancelled"
ROUNDS = 50
RUNNING = 100
WAITING = 1000
REFUSED = 50
SERVERS = 4
COME_BACK = 1.0


async def cancellation(folder: Path) -> list[Figure]:
    """From the client's notification to what a server of either era writes to stderr when it has got it."""
    figures = []
    async with program(folder, legacy=lean(), modern=lean(era="modern")) as running:
        for era in ("legacy", "modern"):
            seconds = []
            for number in range(ROUNDS):
                request_id, _ = running.client.begin("tools/call", {"name": f"{era}:hold"})
                await running.told(f"[{era}] holding", number + 1)
                told = time.monotonic()
                running.client.notify("notifications/cancelled", {"requestId": request_id})
                seconds.append(await running.told(f"[{era}] cancelled", number + 1) - told)
            figures.append(soon("a client cancels", f"a {era} server knows", 200, seconds))
    return figures


async def dead_client_on_stdio(folder: Path) -> list[Figure]:
    """The client is killed, and its ends of the pipes with it."""
    mortal = [sys.executable, "-S", str(MORTAL_CLIENT)]
    async with program(folder, through=mortal, handshake=False, a=lean()) as running:
        await running.told("[a] holding")
        killed = time.monotonic()
        running.process.kill()
        known = await running.told(CANCELLED)
        await running.silent()
        ended = time.monotonic()
    fault = "a client on stdio is killed during a call"
    return [
        soon(fault, "its call is cancelled at the server", 1000, [known - killed]),
        Figure(fault, "everything has ended", 5, ended - killed, "s"),
    ]


async def dead_client_over_http(folder: Path) -> list[Figure]:
    """Connections break during calls; one request may run at once. A legacy client has a second to come back."""
    fault, figures = "an HTTP connection breaks during a call", []
    settings = {"max_concurrent_requests": 1, "reconnect_wait": COME_BACK}
    for era, patience in (("legacy", COME_BACK), ("modern", 0.0)):
        late = []
        async with http_program(folder, settings=settings, a=lean()) as (running, url):
            client = HttpClient(url, modern=era == "modern", name="faults")
            await client.start()
            for number in range(5):
                request_id, _ = client.begin("tools/call", {"name": "a:hold"})
                await running.told("[a] holding", number + 1)
                broken = time.monotonic()
                client.hang_up(request_id)
                late.append(await running.told(CANCELLED, number + 1) - broken - patience)
            is_free = "result" in await client.send("tools/call", {"name": "a:echo"})
            await client.close()
        after = f" after {COME_BACK:g} s to come back" if patience else ""
        figures.append(soon(fault, f"{era} client: cancelled at the server{after}", 1000, late))
        figures.append(Figure(fault, f"{era} client: its place is free", True, is_free, exact=True))
    return figures


async def too_many_requests(folder: Path) -> list[Figure]:
    """Calls that are held, up to the limits of the default settings, and then some more."""
    fault = "more HTTP requests than may run and wait"
    tools = [f"s{number}:hold" for number in range(SERVERS)]
    async with http_program(folder, **{tool.split(":")[0]: lean() for tool in tools}) as (running, url):
        held = [await call(url, tool) for tool in islice(cycle(tools), RUNNING + WAITING - 1)]
        await running.told("holding", RUNNING)
        while not await _is_refused_at_once(url, held):
            pass
        seconds, heads = [], []
        for _ in range(REFUSED):
            began = time.monotonic()
            heads.append(await head_of(url, tools[0]))
            seconds.append(time.monotonic() - began)
        for _, writer in held:
            writer.transport.abort()
    return [
        Figure(fault, "run or wait", RUNNING + WAITING, len(held), exact=True),
        Figure(fault, "run at once", RUNNING, len(running.times("holding")), exact=True),
        Figure(fault, f"of {REFUSED} more, get 503 with Retry-After", REFUSED, sum(map(is_refused, heads)), exact=True),
        soon(fault, "503 comes", 50, seconds),
    ]


async def _is_refused_at_once(url: str, held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> bool:
    """Whether one more is refused; if not, it is held."""
    reader, writer = await call(url, "s0:hold")
    try:
        await asyncio.wait_for(reader.readuntil(b" 503 "), 2)
    except TimeoutError:
        held.append((reader, writer))
        return False
    return True
