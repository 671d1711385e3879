"""What the rows share: peers in front of servers, and clients that have seen all of these servers' tools."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.clients import Message
from benchmarks.peers.running import PeerClient, Served, serving
from benchmarks.peers.table import Entries, Peer
from benchmarks.programs import BASE_TOOLS, LEAN_CHILD
from benchmarks.rounds import Size

START_SECONDS = 120.0
"""Within which a peer must have listed its servers' tools, twice."""
LISTED_SECONDS = 55.0
"""The same, so long that it is told which tools there were."""
_PAUSE = 0.02


@dataclass(frozen=True)
class Bench:
    """Where the peers are installed, a folder for what they write, how much is measured."""

    installed: Path
    folder: Path
    size: Size
    peers: list[Peer]

    def serving(self, peer: Peer, entries: Entries, stack: ExitStack) -> Served:
        """A peer in front of these servers, until the stack is left."""
        return stack.enter_context(serving(peer, entries, self.folder, self.installed))


def lean(**options: Any) -> Mapping[str, Any]:
    """The entry of a lean server."""
    return {"command": sys.executable, "args": ["-S", str(LEAN_CHILD), json.dumps(options)]}


def lean_servers(count: int, tools_each: int = BASE_TOOLS) -> Entries:
    """So many lean servers: s0, s1, …"""
    return {f"s{number}": lean(tools=tools_each - BASE_TOOLS) for number in range(count)}


def all_listed(client: PeerClient, wanted: Iterable[str], seconds: float = LISTED_SECONDS) -> None:
    """Wait until all of these tools are listed.

    Raises:
        TimeoutError: they were not.
    """
    until, missing = time.perf_counter() + seconds, set(wanted)
    while missing := missing - set(listed := names_listed(client)):
        if time.perf_counter() > until:
            raise TimeoutError(f"{min(missing)} was not listed within {seconds:g} s, {len(listed)} tools were")
        time.sleep(_PAUSE)


def names_listed(client: PeerClient) -> list[str]:
    """The names of all tools, on however many pages."""
    names, cursor = list[str](), None
    while True:
        page = client.result("tools/list", {} if cursor is None else {"cursor": cursor})
        names += [tool["name"] for tool in page["tools"]]
        if (cursor := page.get("nextCursor")) is None:
            return names


def called(client: PeerClient, name: str, arguments: Message) -> Message:
    """What a tool answers.

    Raises:
        RuntimeError: an error.
    """
    result = client.result("tools/call", {"name": name, "arguments": arguments})
    if result.get("isError"):
        raise RuntimeError(" ".join(part.get("text", "") for part in result["content"]))
    return result


def said(result: Message) -> Any:
    """The JSON in the text of a lean server's answer."""
    return json.loads(result["content"][0]["text"])
