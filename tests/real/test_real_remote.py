"""server-everything as a remote server, over streamable HTTP and over SSE."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import psutil
import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from install_servers import node_script
from mcp.shared.exceptions import MCPError
from real_answers import public_component
from real_fastmcp import ASKABLE
from real_servers import FOLDER, requires_servers
from support.wire import PATIENCE

from fastmcp_aggregator import build_aggregator

pytestmark = [pytest.mark.real, requires_servers]

each_transport = pytest.mark.parametrize("transport", ["http", "sse"])
each_era = pytest.mark.parametrize("mode", ["legacy", "auto"])

SUM = {"a": 1, "b": 2}


@asynccontextmanager
async def serving(transport: str) -> AsyncIterator[int]:
    """A server-everything of its own; the port it listens on."""
    script = node_script(FOLDER, "@modelcontextprotocol/server-everything")
    process = await asyncio.create_subprocess_exec(
        "node",
        str(script),
        {"http": "streamableHttp", "sse": "sse"}[transport],
        env={**os.environ, "PORT": "0"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while b" port " not in await process.stderr.readline():
                assert process.returncode is None
        (listening,) = psutil.Process(process.pid).net_connections("tcp")
        yield listening.laddr.port
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Forwarder:
    """A port that stays the same while the server behind it is replaced; who comes between two servers waits."""

    def __init__(self) -> None:
        self._way: asyncio.Future[int] = asyncio.Future()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        """Listen; the port."""
        async with await asyncio.start_server(self._forward, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]

    @asynccontextmanager
    async def leading_to(self, port: int) -> AsyncIterator[None]:
        """Forward to a server on this port."""
        self._way.set_result(port)
        yield
        self._way = asyncio.Future()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", await self._way)
        with suppress(ConnectionError):
            await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def config(transport: str, port: int) -> dict[str, Any]:
    path = {"http": "mcp", "sse": "sse"}[transport]
    return {"mcpServers": {"far": {"type": transport, "url": f"http://127.0.0.1:{port}/{path}"}}}


def tools_as_json(tools: list[Any]) -> list[dict[str, Any]]:
    return [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in tools]


@each_transport
@each_era
async def test_a_remote_server_lists_and_answers_as_it_does_directly(transport: str, mode: str) -> None:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        settings = config(transport, await enter(serving(transport)))
        client = await enter(Client(await enter(build_aggregator(settings)), mode=mode, **ASKABLE))
        direct = await enter(Client(settings["mcpServers"]["far"]["url"], mode="legacy", **ASKABLE))
        listed = tools_as_json(await direct.list_tools())
        expected = [public_component("far", "name", tool) for tool in listed]
        assert tools_as_json(await client.list_tools()) == expected
        arguments = {"location": "Chicago"}
        answer = await client.call_tool("far:get-structured-content", arguments)
        expected_answer = await direct.call_tool("get-structured-content", arguments)
        assert answer.content == expected_answer.content
        assert answer.structured_content == expected_answer.structured_content


@each_transport
@each_era
async def test_progress_of_a_remote_call_arrives_in_order(transport: str, mode: str) -> None:
    steps: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async with (
        serving(transport) as port,
        build_aggregator(config(transport, port)) as hub,
        Client(hub, mode=mode, **ASKABLE) as client,
    ):
        await client.call_tool("far:get-roots-list")  # or else it asks for them at any moment
        arguments = {"duration": 0.2, "steps": 4}
        name = "far:trigger-long-running-operation"
        await client.call_tool(name, arguments, progress_handler=note)
    assert steps == [1, 2, 3, 4]


@each_transport
async def test_calls_succeed_again_after_the_remote_server_was_killed_and_started_again(
    transport: str,
) -> None:
    forwarder = Forwarder()
    async with forwarder.open() as port, AsyncExitStack() as hub_stack, asyncio.timeout(PATIENCE):
        async with serving(transport) as first, forwarder.leading_to(first):
            hub = await hub_stack.enter_async_context(build_aggregator(config(transport, port)))
            client = await hub_stack.enter_async_context(Client(hub, mode="legacy", **ASKABLE))
            await client.call_tool("far:get-sum", SUM)
        async with serving(transport) as second, forwarder.leading_to(second):
            failures = 0
            while True:
                try:
                    result = await client.call_tool("far:get-sum", SUM)
                    break
                except (ToolError, MCPError):
                    failures += 1
            assert failures <= 1
            assert result.content[0].text == "The sum of 1 and 2 is 3."
            assert hub.health()["far"].restarts == 1
            await hub_stack.aclose()
