"""What the tests share: children for a config, and servers with a raw client at hand."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.endpoint import endpoint_for
from fastmcp_aggregator.children.process.process import ChildProcess, Graces
from fastmcp_aggregator.children.timings import Timings
from support.doubles import NoFlowControl
from support.wire import LEGACY, MODERN, PATIENCE, PipeClient, RawClient, until

__all__ = [
    "LEGACY",
    "MODERN",
    "PATIENCE",
    "SLOW_RETRIES",
    "RawClient",
    "ServerProcess",
    "briefly",
    "config",
    "connected",
    "free_port",
    "lean",
    "running",
    "talking",
    "timed",
    "until",
]

LEAN_CHILD = Path(__file__).parent / "programs" / "lean_child.py"
TALKING_CHILD = LEAN_CHILD.with_name("talking_child.py")


def lean(**options: Any) -> dict[str, Any]:
    """An `mcpServers` entry for a lean child."""
    return {"command": sys.executable, "args": ["-S", str(LEAN_CHILD), json.dumps(options).replace("$", "$$")]}


def talking(**options: Any) -> dict[str, Any]:
    """An `mcpServers` entry for a talking child."""
    entry = lean(**options)
    return {**entry, "args": [*entry["args"][:1], str(TALKING_CHILD), *entry["args"][2:]]}


def config(**entries: dict[str, Any]) -> dict[str, Any]:
    """An `mcpServers` document."""
    return {"mcpServers": entries}


SLOW_RETRIES = Timings(served_after=math.inf, first_ceiling=3600.0, last_ceiling=3600.0, jitter=lambda: 1.0)
"""Failed children wait for an hour, however long they have served."""


def timed(app: Aggregator, timings: Timings) -> Aggregator:
    """The app, with other timings of its supervision; to be called before it is entered."""
    app._backend.timings = timings
    return app


def briefly(app: Aggregator) -> Aggregator:
    """The app, whose processes end by force alone; to be called before it is entered."""
    launch = partial(ChildProcess.spawn, graces=Graces(exit=0.1, term=0.05))
    app._backend.new_endpoint = partial(endpoint_for, launch=launch)
    return app


def free_port() -> int:
    """A port of this machine for a program that is to listen on it later. It is below those that the system gives to
    connections (from 32768 on Linux, 49152 elsewhere), so that none gets it meanwhile.
    """
    while True:
        port = secrets.choice(range(12_000, 32_000))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


_END_PATIENCE = 25.0
"""Less than what a program gives requests in flight at its end, so that it does not pass by waiting for them."""


class ServerProcess:
    """A server as a child process, with a raw client on its stdio."""

    def __init__(self, process: asyncio.subprocess.Process, client: RawClient) -> None:
        self.process = process
        self.client = client
        self.stderr = b""
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(65536):
            self.stderr += chunk

    async def said(self, text: str) -> None:
        """Wait until this text was on its stderr."""
        await until(lambda: text.encode() in self.stderr)

    async def end(self) -> int:
        """Close its stdin and wait for it; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.wait(_END_PATIENCE)

    async def wait(self, seconds: float = PATIENCE) -> int:
        """Wait for it to end; its exit code."""
        code = await asyncio.wait_for(self.process.wait(), seconds)
        await self._draining
        return code


@asynccontextmanager
async def running(
    *command: str,
    modern: bool = False,
    name: str = "test",
    capabilities: dict[str, Any] | None = None,
    version: str = LEGACY,
    handshake: bool = True,
    **options: Any,
) -> AsyncIterator[ServerProcess]:
    """Run a command that serves MCP on stdio; it is killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
        **options,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    about: dict[str, Any] = {"modern": modern, "name": name, "capabilities": capabilities, "version": version}
    client = PipeClient(process.stdout, process.stdin.write, **about)
    server = ServerProcess(process, client)
    try:
        if handshake:
            await client.start()
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await client.close()


@asynccontextmanager
async def connected(
    app: Any,
    *,
    modern: bool = False,
    name: str = "test",
    capabilities: dict[str, Any] | None = None,
    handshake: bool = True,
    folder: str | None = None,
) -> AsyncIterator[RawClient]:
    """A raw client of an app in this process, over the app's own low-level server, with its fast path if it has one.

    It works in this folder, if one is given.
    """
    from fastmcp_aggregator.callers.pipe_client import pipe_client
    from fastmcp_aggregator.front.fast_path.pipe import PIPE_FRONT, PipeFront
    from fastmcp_aggregator.front.stdio.conversation import Conversation
    from fastmcp_aggregator.message_streams import MessageReader, MessageWriter, encode
    from fastmcp_aggregator.pipe.lines import LineSplitter

    replies = asyncio.StreamReader(limit=64 * 1024 * 1024)
    path = app._pipeline.fast_path if hasattr(app, "_pipeline") else None
    front = PipeFront(path) if path is not None and path.is_on else None
    hooks: dict[str, Any] = {} if front is None else {"take": front.take, "on_busy": front.pass_over}
    conversation = Conversation(lambda: requests.has_more, lambda error: replies.feed_data(encode(error)))
    requests = MessageReader(NoFlowControl(), lambda line: None, conversation.read, **hooks)
    ends = _Ends(replies, requests, conversation)
    if front is not None:
        front.attach(ends)
    PIPE_FRONT.set(front)
    splitter = LineSplitter(64 * 1024 * 1024)
    client = PipeClient(
        replies,
        lambda data: requests.feed(splitter.feed(data)),
        modern=modern,
        name=name,
        capabilities=capabilities,
    )
    server = app._mcp_server
    options = server.create_initialization_options()

    class Writer(MessageWriter):
        async def send(self, item: Any, /) -> None:
            await super().send(item)
            if not hasattr(item.message, "method"):
                conversation.written(item.message)

    async def serve() -> None:
        with pipe_client(folder):
            await server.run(requests, Writer(ends), options)

    serving = asyncio.create_task(serve())
    PIPE_FRONT.set(None)
    try:
        if handshake:
            await client.start()
        yield client
    finally:
        requests.feed_end()
        if front is not None:
            front.close()
        await asyncio.wait_for(serving, PATIENCE)
        await client.close()


class _Ends:
    """The two ends of the pipe to a client."""

    def __init__(self, reader: asyncio.StreamReader, requests: Any, conversation: Any) -> None:
        self._reader = reader
        self._requests = requests
        self.conversation = conversation
        self.has_room = True

    def answer(self, line: bytes) -> None:
        self._reader.feed_data(line)

    def read_again(self, request_id: Any, line: bytes) -> None:
        self.conversation.read_again(request_id, line)
        self._requests.read([line])

    def write(self, data: bytes) -> None:
        self._reader.feed_data(data)

    async def drained(self) -> None:
        return
