"""HTTP clients that send anything: they are refused, good requests are answered, and the program stays as it was."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fuzzing import ENVIRONMENT, SCALE, Draw, Watch, draws
from garbage import MODERN_ENVELOPE
from http_garbage import HttpAnswer, HttpGarbage, Sent, exchange, request
from support.harness import LEGACY, ServerProcess, config, free_port, lean, running, until
from support.processes import complaints

pytestmark = pytest.mark.fuzz

BATCHES = 3
REQUESTS = 100
CLIENTS, SLOW = 4, 3
GRACE = 3.0
"""Seconds that a slow client pauses in the middle of its request, at most."""
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
PROMPT = {"name": "hello", "arguments": [{"name": "who"}]}
RESOURCE = {"uri": "test://file", "name": "file"}
INTERNAL = {0, -32603}


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[ServerProcess, int]]:
    document, port = folder / "mcp.json", free_port()
    document.write_text(json.dumps(config(a=lean(prompts=[PROMPT], resources=[RESOURCE]))))
    command = [sys.executable, "-m", "fastmcp_aggregator", str(document), "--transport", "http", "--port", str(port)]
    async with running(*command, handshake=False, env=ENVIRONMENT) as server:
        await server.said("/mcp")
        yield server, port


async def ask(
    port: int, message: dict[str, Any], *, session: str | None = None, pause: asyncio.Event | None = None
) -> HttpAnswer:
    """A good request, which is answered."""
    answer = await exchange(port, Sent(request(message, session=session).encoded(), is_whole=True), pause=pause)
    assert answer is not None
    assert answer.status < 300, answer
    return answer


async def call(port: int, nonce: str, *, session: str | None = None, pause: asyncio.Event | None = None) -> None:
    """A good call of a client of either era, which is answered with its own nonce."""
    params = {"name": "a:echo", "arguments": {"nonce": nonce}, **({} if session else MODERN_ENVELOPE)}
    answer = await ask(port, {"id": nonce, "method": "tools/call", "params": params}, session=session, pause=pause)
    result = answer.message()
    assert result["id"] == nonce
    assert json.loads(result["result"]["content"][0]["text"])["arguments"] == {"nonce": nonce}


async def open_session(port: int) -> str:
    answer = await ask(port, {"id": 0, "method": "initialize", "params": HELLO})
    session = answer.headers["mcp-session-id"]
    await ask(port, {"method": "notifications/initialized"}, session=session)
    return session


async def end_session(port: int, session: str) -> None:
    delete = f"DELETE /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nmcp-session-id: {session}\r\n\r\n".encode()
    assert await exchange(port, Sent(delete, is_whole=True))


async def send_garbage(port: int, draw: Draw, session: str) -> None:
    """One input, and what must be true of its answer."""
    garbage = HttpGarbage(draw.random, session)
    sent = garbage.sent()
    ending = "wait" if sent.is_whole else garbage.random.choice(("half-close", "abort"))
    told = f"{draw}, {ending}: {sent.data[:3000]!r}"
    try:
        answer = await exchange(port, sent, ending=ending)
    except TimeoutError:
        raise AssertionError(f"no answer: {told}") from None
    assert answer is not None or not sent.is_whole, told
    if answer is None:
        return
    assert answer.status < 500, f"{answer}: {told}"
    message = answer.message()
    if isinstance(message, dict) and "error" in message:
        assert message["error"]["code"] not in INTERNAL, f"{answer}: {told}"
    if (opened := answer.headers.get("mcp-session-id")) not in (None, session) and answer.status == 200:
        await end_session(port, opened)


async def client(port: int, batch: Draw, number: int) -> None:
    """One client, which sends malformed requests with good calls in between."""
    session = await open_session(port)
    for index in range(number, REQUESTS, CLIENTS):
        await send_garbage(port, Draw(f"{batch.what} {batch.number}", index), session)
        if index % 10 == number:
            await call(port, f"{batch.number}.{index}")
    await end_session(port, session)
    session = await open_session(port)
    await call(port, f"{batch.number}", session=session)
    await end_session(port, session)


async def send_batch(port: int, batch: Draw) -> None:
    """Several clients at the same time, and some that do not come to the end of their requests meanwhile."""
    pausing = asyncio.Event()
    asyncio.get_running_loop().call_later(GRACE, pausing.set)  # who takes longer is refused
    async with asyncio.TaskGroup() as slow:
        for number in range(SLOW):
            slow.create_task(call(port, f"slow {number}", pause=pausing))
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(client(port, batch, number))
        pausing.set()


async def test_good_requests_among_malformed_ones_are_answered_and_the_program_does_not_grow(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, port):
        for draw in draws("early http", 1):
            await send_batch(port, draw)
        watch = Watch("HTTP", server.process.pid)
        for draw in draws("http", BATCHES):
            await send_batch(port, draw)
        report = watch.report(BATCHES * SCALE * REQUESTS)
        with suppress(TimeoutError):
            await until(lambda: not watch.has_grown)
        assert not watch.has_grown, report
        server.process.terminate()
        assert await server.wait() == 0
    assert complaints(server.stderr) == []
