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
from fastmcp.server.providers import LocalProvider
from my_notes.service.app import Server
from my_notes.service.serving import serve
from my_notes.service.settings import load_settings

provider = LocalProvider()

@provider.tool
async def slow() -> dict[str, str]:
    "Say that it has begun, and take a while."
    print("begun", file=sys.stderr, flush=True)
    await anyio.sleep(0.5)
    return {{"said": "x" * {SIZE}}}

anyio.run(serve, Server(load_settings(), version="1.0.0", instructions="", providers=[provider]))
"""

TYPESCRIPT = f"""
import {{ z }} from "zod";
import {{ tool }} from "./src/service/define.js";
import {{ Service }} from "./src/service/service.js";
import {{ serve }} from "./src/service/serving.js";
import {{ loadSettings }} from "./src/service/settings.js";

const slow = tool({{
  name: "slow",
  description: "Say that it has begun, and take a while.",
  input: z.object({{}}),
  output: z.object({{ said: z.string() }}),
  run: async () => {{
    console.error("begun");
    await new Promise((resolve) => setTimeout(resolve, 500));
    return {{ said: "x".repeat({SIZE}) }};
  }},
}});
const offer = {{ tools: [slow], resources: [], prompts: [] }};
await serve(new Service(loadSettings(), {{ version: "1.0.0", instructions: "" }}, offer));
"""


def command(language: str, followed: Followed) -> tuple[list[str], Path]:
    if language == "python":
        return [str(followed.python), "-c", PYTHON], followed.folder
    return ["node", "--input-type=module", "--eval", TYPESCRIPT], followed.built


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
@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_a_call_in_flight_over_http_is_answered_when_a_signal_comes(
    language: str, mode: Any, followed: Followed
) -> None:
    port = free_port()
    async with asyncio.timeout(PATIENCE), serving(*command(language, followed), port) as process:
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
