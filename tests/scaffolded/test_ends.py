"""How servers end that serve HTTP: calls in flight are answered first, whatever the client speaks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from following import Followed
from support.harness import PATIENCE, free_port

pytestmark = pytest.mark.skipif("SCAFFOLD" not in os.environ, reason="run by the nox session `scaffold`")

SECRET = "0123456789abcdef"
SIZE = 400_000

PYTHON = f"""
import sys
import anyio
from fastmcp_aggregator.service import Service, ServiceSettings, load_settings, run

mcp = Service("slow", settings=load_settings(ServiceSettings), version="1.0.0")

@mcp.tool
async def slow() -> dict[str, str]:
    "Say that it has begun, and take a while."
    print("begun", file=sys.stderr, flush=True)
    await anyio.sleep(0.5)
    return {{"said": "x" * {SIZE}}}

run(mcp)
"""

TYPESCRIPT = f"""
import {{ serve, ServiceServer }} from "./src/service.js";
import {{ loadSettings }} from "./src/settings.js";

await serve(() => {{
  const server = new ServiceServer({{ name: "slow", version: "1.0.0" }});
  server.registerTool("slow", {{ description: "Say that it has begun, and take a while." }}, async () => {{
    console.error("begun");
    await new Promise((resolve) => setTimeout(resolve, 500));
    const said = "x".repeat({SIZE});
    return {{ content: [], structuredContent: {{ said }} }};
  }});
  return server;
}}, loadSettings());
"""


@pytest.fixture(params=["python", "typescript"])
def command(request: pytest.FixtureRequest, followed: Followed) -> tuple[list[str], Path]:
    """The command of a server with a slow tool, and the folder that it runs in."""
    if request.param == "python":
        return [str(followed.python), "-c", PYTHON], followed.folder
    return ["node", "--input-type=module", "--eval", TYPESCRIPT], request.getfixturevalue("typescript_service")


@asynccontextmanager
async def serving(line: list[str], cwd: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    settings = {"MCP_TRANSPORT": "http", "MCP_HOST": "127.0.0.1", "MCP_PORT": str(port), "MCP_AUTH_TOKEN": SECRET}
    process = await asyncio.create_subprocess_exec(
        *line, cwd=cwd, env={**os.environ, **settings}, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def answered(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_call_in_flight_over_http_is_answered_when_a_signal_comes(
    mode: Any, command: tuple[list[str], Path]
) -> None:
    port = free_port()
    async with asyncio.timeout(PATIENCE), serving(*command, port) as process:
        await answered(port)
        async with Client(f"http://127.0.0.1:{port}/mcp", auth=SECRET, mode=mode) as client:
            await client.list_tools()  # which it would ask for after the call
            call = asyncio.create_task(client.call_tool("slow"))
            assert process.stderr is not None
            while b"begun" not in (line := await process.stderr.readline()):
                assert line, "it has ended"
            process.send_signal(signal.SIGTERM)
            content = (await call).structured_content
            assert content is not None
            assert len(content["said"]) == SIZE
        assert await process.wait() == 0
