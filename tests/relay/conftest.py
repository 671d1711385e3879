"""Fronts with talking children behind them, which all tests of this folder share; each test has a client of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.harness import RawClient, ServerProcess, config, running, talking, timed
from support.serving import served
from support.talking_server import talking_server
from support.wire import EVERYTHING
from support.wire_http import HttpClient
from table import Tests
from ways import Way

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.children.timings import Timings

SERVERS_THAT_COME = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts"))
"""What clients of a front may be told after its start, whenever another of its servers is there."""


@dataclass(frozen=True, slots=True)
class Fronts:
    """`connect` makes clients over HTTP; `processes` are two on stdio, by whether their clients are modern."""

    connect: Callable[..., Awaitable[HttpClient]]
    processes: dict[bool, ServerProcess]

    def on_stdio(self, *, modern: bool) -> RawClient:
        """The only client of a process."""
        return self.processes[modern].client


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def fronts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fronts]:
    needs_processes = any(item.get_closest_marker("process") for item in request.session.items)
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(talking_server())
        new = await stack.enter_async_context(talking_server(era="modern"))
        remote = {"old-http": old.entry, "new-http": new.entry}
        document = config(old=talking(), new=talking(era="modern"), both=talking(era="both"), **remote)
        file = tmp_path_factory.mktemp("relay") / "config.json"
        file.write_text(json.dumps(document))
        command = [sys.executable, "-m", "fastmcp_aggregator", str(file)]
        processes = {
            modern: await stack.enter_async_context(running(*command, modern=modern, capabilities=EVERYTHING))
            for modern in ((False, True) if needs_processes else ())
        }
        app = timed(build_aggregator(document), Timings(change_settle=0.005, change_interval=0.01))
        front = await stack.enter_async_context(served(app))
        yield Fronts(front.connect, processes)


@pytest_asyncio.fixture(loop_scope="session")
async def client(way: Way, fronts: Fronts) -> AsyncIterator[RawClient]:
    """The client at the end of the way."""
    if way.front == "stdio":
        client = fronts.on_stdio(modern=way.is_modern)
        client.ignored = SERVERS_THAT_COME
        client.forget()
        yield client
        return
    connected = await fronts.connect(modern=way.is_modern, capabilities=EVERYTHING)
    connected.ignored = SERVERS_THAT_COME
    connected.forget()
    yield connected
    await connected.close()


TESTS = Tests()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function, call: Any) -> Generator[None, Any, Any]:
    report = yield
    if call.when == "call" and hasattr(item, "callspec"):
        TESTS.count(item.module.__name__, item.callspec.params, has_passed=report.passed)
    return report


def pytest_sessionfinish() -> None:
    if page := os.environ.get("RELAY_TABLE"):
        TESTS.write(Path(page))
