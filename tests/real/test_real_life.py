"""The processes of real servers: started with their own environment only, held, and ended with the aggregator."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from real_fronts import Entries
from real_servers import aggregator_command, requires_servers, safe_environment
from support.harness import ServerProcess, running

pytestmark = [pytest.mark.real, requires_servers, pytest.mark.parametrize("modern", [False, True])]


@asynccontextmanager
async def aggregating(entries: Entries, modern: bool, folder: Path, **env: str) -> AsyncIterator[ServerProcess]:
    """An aggregator as a process, whose servers have all been listed."""
    config = folder / "config.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    environment = {**safe_environment(), **env}
    async with running(*aggregator_command(config), env=environment, modern=modern) as server:
        await server.client.result("tools/list")
        yield server


def descendants(server: ServerProcess) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running()]


async def test_every_server_is_one_process_and_the_same_one_after_many_calls(
    modern: bool, entries: Entries, tmp_path: Path
) -> None:
    async with aggregating(entries, modern, tmp_path) as server:
        before = {process.pid for process in descendants(server)}
        assert len(before) == len(entries)
        sums = [{"name": "everything:get-sum", "arguments": {"a": number, "b": 1}} for number in range(100)]
        results = await asyncio.gather(*(server.client.result("tools/call", sum_) for sum_ in sums))
        for number, result in enumerate(results):
            assert result["content"][0]["text"] == f"The sum of {number} and 1 is {number + 1}."
        for key in ("filesystem", "filesystem-other"):
            await server.client.result("tools/call", {"name": f"{key}:list_allowed_directories", "arguments": {}})
        assert {process.pid for process in descendants(server)} == before


async def test_no_process_is_left_when_the_client_closes_stdin(modern: bool, entries: Entries, tmp_path: Path) -> None:
    async with aggregating(entries, modern, tmp_path) as server:
        started = descendants(server)
        assert len(started) == len(entries)
        assert await server.end() == 0
    assert still_running(started) == []


async def test_a_call_is_answered_and_no_process_left_when_the_aggregator_is_told_to_end_during_it(
    modern: bool, entries: Entries, tmp_path: Path
) -> None:
    async with aggregating(entries, modern, tmp_path) as server:
        started = descendants(server)
        assert len(started) == len(entries)
        slow = {"name": "everything:trigger-long-running-operation", "arguments": {"duration": 2, "steps": 20}}
        _, answer = server.client.begin("tools/call", {**slow, "_meta": {"progressToken": 1}})
        await server.client.heard("notifications/progress")
        server.process.send_signal(signal.SIGTERM)
        (block,) = (await answer)["result"]["content"]
        assert block["text"].startswith("Long running operation completed.")
        await server.wait()
    assert still_running(started) == []


async def test_a_server_sees_its_own_environment_and_none_of_the_aggregators(
    modern: bool, entries: Entries, tmp_path: Path
) -> None:
    everything = {**entries["everything"], "env": {"FOR_THE_SERVER": "yes"}}
    async with aggregating({"everything": everything}, modern, tmp_path, NOT_FOR_SERVERS="secret") as server:
        result = await server.client.result("tools/call", {"name": "everything:get-env", "arguments": {}})
    (block,) = result["content"]
    assert json.loads(block["text"])["FOR_THE_SERVER"] == "yes"
    assert "secret" not in block["text"]
