"""The end of the program while a call goes on: how long it has, and what is left."""

import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.harness import ServerProcess, config, lean, running, until
from support.processes import are_gone
from support.wire_http import HttpClient

pytestmark = pytest.mark.process

PROGRAM = (
    "import sys\n"
    "from fastmcp_aggregator import build_aggregator\n"
    "from fastmcp_aggregator.children.timings import Timings\n"
    "tell = lambda url: print('listening on', url, file=sys.stderr, flush=True)\n"
    "options = {'transport': 'http', 'port': 0, 'on_listening': tell} if sys.argv[3:] else {}\n"
    "app = build_aggregator(sys.argv[1])\n"
    "app._backend.timings = Timings(drain_timeout=float(sys.argv[2]))\n"
    "app.run(**options)\n"
)


@asynccontextmanager
async def served(folder: Path, *, bound: float, http: bool = False) -> AsyncIterator[ServerProcess]:
    """A program whose calls have `bound` seconds at its end; its child `a` records its process id."""
    document = folder / "mcp.json"
    document.write_text(json.dumps(config(a=lean(record=str(folder / "pid")))))
    command = [sys.executable, "-c", PROGRAM, str(document), str(bound), *(["http"] if http else [])]
    async with running(*command, handshake=not http) as server:
        yield server


async def test_a_call_that_does_not_finish_in_time_is_cut(tmp_path: Path) -> None:
    async with served(tmp_path, bound=0.3) as server:
        _, answer = server.client.begin("tools/call", {"name": "a:hold"})
        await server.said("holding")
        server.process.send_signal(signal.SIGTERM)
        assert "has ended before this request was answered" in (await answer)["error"]["message"]
        assert await server.wait() == 0
        assert b"Traceback" not in server.stderr
    await until(lambda: are_gone(tmp_path / "pid"))


@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
async def test_a_call_over_http_that_does_not_finish_in_time_is_cut(modern: bool, tmp_path: Path) -> None:
    async with served(tmp_path, bound=0.3, http=True) as server:
        await server.said("/mcp\n")
        url = server.stderr.decode().split("listening on ")[1].split()[0]
        client = HttpClient(url, modern=modern, name="test")
        await client.start()
        client.begin("tools/call", {"name": "a:hold"})
        await server.said("holding")
        server.process.send_signal(signal.SIGTERM)
        assert await server.wait() == 0
        await client.close()
        assert b"Traceback" not in server.stderr
        assert b"ERROR" not in server.stderr
    await until(lambda: are_gone(tmp_path / "pid"))


async def test_a_program_that_is_to_end_does_not_wait_for_calls_of_a_client_that_is_gone(tmp_path: Path) -> None:
    async with served(tmp_path, bound=3600.0) as server:
        server.client.begin("tools/call", {"name": "a:hold"})
        await server.said("holding")
        server.process.send_signal(signal.SIGTERM)
        while "error" not in await server.client.send("tools/call", {"name": "a:echo"}):
            pass
        server.process.stdout._transport.close()  # type: ignore[union-attr]
        assert await server.wait() == 0
    await until(lambda: are_gone(tmp_path / "pid"))
