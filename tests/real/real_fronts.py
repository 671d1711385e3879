"""The ways to an aggregator that are tested, and its servers beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.processes import serving
from real_servers import MODERN_SERVERS, aggregator_command, direct_command, safe_environment
from support.harness import running
from support.wire import EVERYTHING, LEGACY, MODERN, RawClient
from support.wire_http import HttpClient

Message = dict[str, Any]
Entries = dict[str, Message]

ANSWERS: dict[str, Message] = {
    # No folders, so that the file servers stay with theirs.
    "roots/list": {"roots": [{"uri": "file:///nowhere/one", "name": "One"}, {"uri": "file:///nowhere/two"}]},
    "elicitation/create": {"action": "accept", "content": {"name": "Zoë", "check": True, "integer": 7}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "Bonjour, 世界"},
        "model": "a-model",
        "stopReason": "endTurn",
    },
}
"""What every client answers, unless a test tells it otherwise: results by method."""


@dataclass(frozen=True)
class Front:
    """A way to an aggregator, and what the client is that takes it."""

    transport: str
    version: str
    is_askable: bool = True
    is_isolated: bool = False

    @property
    def is_modern(self) -> bool:
        return self.version == MODERN

    @property
    def is_resident(self) -> bool:
        """Whether the servers are there for this client alone, and can talk to it at any time."""
        return not self.is_modern and (self.transport == "stdio" or self.is_isolated)

    def behind(self, entries: Entries) -> Entries:
        """The servers behind it: all; but where clients have instances of their own, two that have much to say."""
        return {key: entries[key] for key in ("everything", "memory")} if self.is_isolated else entries

    @property
    def capabilities(self) -> Message:
        return EVERYTHING if self.is_askable else {}

    def __str__(self) -> str:
        return "-".join([self.transport, *(["isolated"] if self.is_isolated else []), self.version])


FRONTS = (
    Front("stdio", LEGACY),
    Front("http", LEGACY, is_isolated=True),
    Front("http", LEGACY),
    Front("stdio", MODERN),
    Front("http", MODERN),
    Front("stdio", "2025-06-18", is_askable=False),
)
ASKABLE_FRONTS = FRONTS[:-1]
SHARED_FRONTS = [front for front in FRONTS if not front.is_isolated]
LEGACY_FRONTS = FRONTS[:3]
RESIDENT_FRONTS = FRONTS[:2]


@asynccontextmanager
async def direct_client(key: str, entry: Message, capabilities: Message) -> AsyncIterator[RawClient]:
    """One server as a process of its own, and a client in its best era."""
    command, env = direct_command(entry)
    async with running(
        *command, env=env, modern=key in MODERN_SERVERS, capabilities=capabilities, handshake=False
    ) as server:
        await start(server.client)
        yield server.client


@dataclass(frozen=True)
class Opened:
    """An aggregator as a process, and a client of it."""

    client: RawClient
    said: Callable[[], str]
    """What the process has written to stderr."""
    url: str = ""


@asynccontextmanager
async def opened(front: Front, folder: Path, entries: Entries, *options: str) -> AsyncIterator[Opened]:
    """An aggregator of these servers, and a client. The process must live to the end."""
    about = {"modern": front.is_modern, "name": "raw", "capabilities": front.capabilities, "version": front.version}
    command = [*aggregator_command(_written(folder / "config.json", {"mcpServers": entries})), *options]
    if front.is_isolated:
        isolated = {"servers": {key: {"isolation": "session"} for key in entries}}
        command += ["--settings", str(_written(folder / "settings.json", isolated))]
    over_stdio = front.transport == "stdio"
    running_it = _over_stdio(command, about) if over_stdio else _over_http(command, about, folder / "stderr")
    async with running_it as aggregator:
        await start(aggregator.client)
        yield aggregator


@asynccontextmanager
async def _over_stdio(command: list[str], about: Message) -> AsyncIterator[Opened]:
    async with running(*command, env=safe_environment(), handshake=False, **about) as server:
        yield Opened(server.client, lambda: bytes(server.stderr).decode())
        assert await server.end() == 0


@asynccontextmanager
async def _over_http(command: list[str], about: Message, log: Path) -> AsyncIterator[Opened]:
    process = serving([*command, "--transport", "http", "--port", "0"], log, "serving on")
    async with AsyncExitStack() as stack:
        url = await asyncio.to_thread(stack.enter_context, process)
        client = HttpClient(url, **about)
        stack.push_async_callback(client.close)
        yield Opened(client, log.read_text, url)


def _written(file: Path, document: Message) -> Path:
    file.write_text(json.dumps(document))
    return file


async def start(client: RawClient) -> None:
    """Let a client answer what it may be asked, and shake hands."""
    client.on_question = lambda method, params: {"result": ANSWERS[method]}
    await client.start()
