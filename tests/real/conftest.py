"""The servers, started twice: behind an aggregator, and directly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from real_servers import (
    Place,
    aggregator_command,
    direct_command,
    make_place,
    safe_environment,
    server_entries,
)
from real_wire import LEGACY, MODERN, Both, WireClient

Entries = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def entries(place: Place, tmp_path: Path) -> Entries:
    """All servers, with an empty memory."""
    return server_entries(place, tmp_path)


@pytest.fixture(scope="session", params=["2025-06-18", LEGACY, MODERN])
def both(request: pytest.FixtureRequest, place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    memories, direct_memories = (tmp_path_factory.mktemp(name) for name in ("memories", "direct-memories"))
    front = start_front(memories, server_entries(place, memories), request.param)
    commands = {key: direct_command(entry) for key, entry in server_entries(place, direct_memories).items()}
    direct = {key: WireClient(command, env) for key, (command, env) in commands.items()}
    with ExitStack() as stack:
        for client in (front, *direct.values()):
            stack.callback(client.close)
        for client in (front, *direct.values()):
            client.connect()
        yield Both(front, direct)


@pytest.fixture(params=[LEGACY, MODERN])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., WireClient]]:
    """Starts an aggregator of a test's own, as a process, and connects to it: `start(entries, **env)`."""
    fronts: list[WireClient] = []

    def start_one(entries: Entries, **env: str) -> WireClient:
        front = start_front(tmp_path, entries, request.param, **env)
        fronts.append(front)
        front.connect()
        return front

    yield start_one
    for front in fronts:
        if front.process.returncode is None:
            front.close()


def start_front(folder: Path, entries: Entries, version: str, **env: str) -> WireClient:
    config = folder / "config.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    return WireClient(aggregator_command(config), {**safe_environment(), **env}, version)
