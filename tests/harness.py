"""What the tests share: lean children for a config, and clients that speak raw JSON."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

LEAN_CHILD = Path(__file__).parent / "programs" / "lean_child.py"
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
PATIENCE = 30.0
"""Seconds after which a test that waits for something gives up; nothing depends on how fast it comes."""


def lean(**options: Any) -> dict[str, Any]:
    """An `mcpServers` entry for a lean child."""
    return {"command": sys.executable, "args": ["-S", str(LEAN_CHILD), json.dumps(options).replace("$", "$$")]}


def config(**entries: dict[str, Any]) -> dict[str, Any]:
    """An `mcpServers` document."""
    return {"mcpServers": entries}


def free_port() -> int:
    """A port of this machine that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until the condition holds; its value."""
    async with asyncio.timeout(PATIENCE):
        while not (value := condition()):
            await asyncio.sleep(0.005)
        return value


class RawClient:
    """One connection over byte streams; answers by id, notifications in order."""

    def __init__(
        self, reader: asyncio.StreamReader, write: Callable[[bytes], None], *, modern: bool, name: str
    ) -> None:
        self._reader = reader
        self._write = write
        self._modern = modern
        self._name = name
        self._next_id = 0
        self._waiting: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self.notifications: list[dict[str, Any]] = []
        self.lines: list[bytes] = []
        self.introduction: dict[str, Any] = {}
        self._reading = asyncio.create_task(self._read())

    async def start(self) -> None:
        """Do the handshake of the client's era."""
        if self._modern:
            self.introduction = (await self.send("server/discover"))["result"]
            return
        params = {
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": {"name": self._name, "version": "1"},
        }
        self.introduction = (await self.send("initialize", params))["result"]
        self.notify("notifications/initialized")

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request; the whole response, result or error."""
        return await asyncio.wait_for(self.begin(method, params)[1], PATIENCE)

    async def result(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request that succeeds; its result."""
        response = await self.send(method, params)
        assert "result" in response, response
        return response["result"]

    async def error(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request that fails; its error."""
        response = await self.send(method, params)
        assert "error" in response, response
        return response["error"]

    def begin(self, method: str, params: dict[str, Any] | None = None) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """A request whose response is awaited later."""
        self._next_id += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = future
        self.write({"id": self._next_id, "method": method, "params": self._enveloped(params)})
        return self._next_id, future

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """A notification."""
        self.write({"method": method, **({"params": params} if params is not None else {})})

    def write(self, message: dict[str, Any]) -> None:
        """Any message."""
        self._write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """A tool call; the JSON in its first text block."""
        result = await self.result("tools/call", {"name": name, "arguments": arguments})
        return json.loads(result["content"][0]["text"])

    async def names(self, method: str = "tools/list") -> list[str]:
        """The names of what a list method lists."""
        result = await self.result(method)
        key = "resourceTemplates" if "templates" in method else method.partition("/")[0]
        return [item.get("uri") or item.get("uriTemplate") or item["name"] for item in result[key]]

    async def heard(self, method: str) -> dict[str, Any]:
        """The first notification of this method, when it has come; it is taken off the list."""
        found = await until(lambda: next((n for n in self.notifications if n["method"] == method), None))
        self.notifications.remove(found)
        return found

    async def close(self) -> None:
        """Stop reading."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    def _enveloped(self, params: dict[str, Any] | None) -> dict[str, Any]:
        if not self._modern:
            return params or {}
        params = dict(params or {})
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": self._name, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
            **params.get("_meta", {}),
        }
        return params

    async def _read(self) -> None:
        while line := await self._reader.readline():
            self.lines.append(line)
            message = json.loads(line)
            waiting = self._waiting.pop(message.get("id"), None) if "method" not in message else None
            if waiting is not None:
                waiting.set_result(message)
            else:
                self.notifications.append(message)


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
        return await self.wait()

    async def wait(self) -> int:
        """Wait for it to end; its exit code."""
        code = await asyncio.wait_for(self.process.wait(), PATIENCE)
        await self._draining
        return code


@asynccontextmanager
async def running(
    *command: str, modern: bool = False, name: str = "test", handshake: bool = True, **options: Any
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
    client = RawClient(process.stdout, process.stdin.write, modern=modern, name=name)
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
    app: Any, *, modern: bool = False, name: str = "test", handshake: bool = True
) -> AsyncIterator[RawClient]:
    """A raw client of an app in this process, over real pipes and the app's own low-level server."""
    from fastmcp_aggregator.pipe.lines import LineSplitter
    from fastmcp_aggregator.pipe.streams import MessageReader, MessageWriter

    replies = asyncio.StreamReader(limit=64 * 1024 * 1024)
    requests = MessageReader(_NoValve(), lambda line: None)
    splitter = LineSplitter(64 * 1024 * 1024)
    client = RawClient(replies, lambda data: requests.feed(splitter.feed(data)), modern=modern, name=name)
    server = app._mcp_server
    options = server.create_initialization_options()
    serving = asyncio.create_task(server.run(requests, MessageWriter(_Replies(replies)), options))
    try:
        if handshake:
            await client.start()
        yield client
    finally:
        requests.feed_end()
        await asyncio.wait_for(serving, PATIENCE)
        await client.close()


class _NoValve:
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Replies:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @property
    def has_room(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        self._reader.feed_data(data)

    async def drained(self) -> None:
        return
