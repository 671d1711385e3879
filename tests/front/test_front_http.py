"""The HTTP front as a process: its end, and who may reach it."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from support.harness import PATIENCE, ServerProcess, config, free_port, lean, running, until
from support.processes import are_gone
from support.wire_events import event_client

pytestmark = pytest.mark.process

PROGRAM = (
    "import json, sys\n"
    "from fastmcp_aggregator import build_aggregator\n"
    "build_aggregator(json.loads(sys.argv[1])).run(transport='http', port=int(sys.argv[2]))\n"
)


@asynccontextmanager
async def served(document: dict[str, Any]) -> AsyncIterator[tuple[ServerProcess, str]]:
    port = free_port()
    command = [sys.executable, "-c", PROGRAM, json.dumps(document), str(port)]
    async with running(*command, handshake=False) as server:
        await until(lambda: _listens(port))
        yield server, f"http://127.0.0.1:{port}/mcp"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_sigterm_lets_a_call_in_flight_finish_and_leaves_no_child(mode: str, tmp_path: Path) -> None:
    record, gate = tmp_path / "pid", tmp_path / "gate"
    async with served(config(a=lean(record=str(record)))) as (server, url):
        client = Client(url, mode=mode)
        async with client:
            await client.list_tools()  # or the client would list after the call, to check the result
            call = asyncio.create_task(client.call_tool_mcp("a:wait", {"file": str(gate)}))
            await server.said("[a] waiting")
            server.process.send_signal(signal.SIGTERM)
            await until_refused(url)
            gate.touch()
            result = await asyncio.wait_for(call, PATIENCE)
            assert json.loads(result.content[0].text) == {"waited": True}  # type: ignore[union-attr]
        assert await server.wait() == 0
        assert b"Traceback" not in server.stderr
    await until(lambda: are_gone(record))


async def test_sigterm_lets_a_client_that_came_back_for_its_answer_have_it(tmp_path: Path) -> None:
    record, gate = tmp_path / "pid", tmp_path / "gate"
    async with served(config(a=lean(record=str(record)))) as (server, url), event_client(url) as client:
        async with client.call("a:wait", file=str(gate)) as response:
            first = await response.next()
            await server.said("[a] waiting")
        assert first is not None
        server.process.send_signal(signal.SIGTERM)
        await until_refused(url)
        async with client.listen(first.event_id) as response:
            gate.touch()
            assert [event.says for event in await response.rest()] == ["result"]
        assert await server.wait() == 0
        assert b"Traceback" not in server.stderr


async def until_refused(url: str) -> None:
    """Wait until new requests are turned away; the refusal says when to come back."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http, asyncio.timeout(PATIENCE):
        while (answer := await http.post(url, json={})).status_code != 503:
            await asyncio.sleep(0.01)
    assert answer.headers["Retry-After"] == "5"


async def test_ping_and_lists_by_hand(tmp_path: Path) -> None:
    async with served(config(a=lean())) as (_, url), httpx2.AsyncClient(timeout=PATIENCE) as http:
        accept = {"Accept": "application/json, text/event-stream"}
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "h", "version": "1"},
            },
        }
        answer = await http.post(url, json=hello, headers=accept)
        assert answer.status_code == 200
        assert "Mcp-Session-Id" in answer.headers
        assert (await http.post(url.replace("/mcp", "/other"), json=hello, headers=accept)).status_code == 404
        foreign = await http.post(url, json=hello, headers={**accept, "Origin": "http://evil.example"})
        assert foreign.status_code == 403
