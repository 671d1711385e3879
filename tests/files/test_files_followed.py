"""A config file that is followed, by a clock that jumps: which of the changes that are reported lead to a read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.virtual_time import VirtualTimePolicy

from fastmcp_aggregator.files import followed


@pytest.fixture
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


Report = Callable[[], None]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    """Tells the watch that something in the folder has changed. Nothing is found by looking from time to time."""
    changes: asyncio.Queue[None] = asyncio.Queue()

    async def changes_in(*_: object) -> AsyncIterator[None]:
        while True:
            yield await changes.get()

    monkeypatch.setattr(followed, "_changes_in", changes_in)
    return lambda: changes.put_nowait(None)


@asynccontextmanager
async def reads_of(path: Path) -> AsyncIterator[list[str]]:
    """What is read of a file while it is followed."""
    texts: list[str] = []

    async def read() -> None:
        texts.append(path.read_text())

    async with followed.FollowedFiles([path], read).following(watch=True):
        await settled()
        assert texts == ["begin"]
        yield texts


async def settled() -> None:
    await asyncio.sleep(10 * followed.QUIET)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text("begin")
    return path


async def test_changes_that_follow_each_other_closely_are_one(path: Path, report: Report) -> None:
    async with reads_of(path) as texts:
        for number in range(20):
            path.write_text("x" * number)
            report()
            await asyncio.sleep(followed.QUIET / 2)
        await settled()
        assert texts == ["begin", "x" * 19]


async def test_other_files_beside_it_are_nothing_to_it(path: Path, report: Report) -> None:
    async with reads_of(path) as texts:
        (path.parent / "other").write_text("x")
        report()
        await settled()
        assert texts == ["begin"]
        path.write_text("end")
        report()
        await settled()
        assert texts == ["begin", "end"]


async def test_a_log_that_is_written_beside_it_all_the_time_leads_to_two_looks_a_second(
    path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    stamp_of = followed.stamp_of
    async with reads_of(path) as texts:
        monkeypatch.setattr(followed, "stamp_of", lambda file: (looks.append(file), stamp_of(file))[1])
        for _ in range(1000):
            report()
            await asyncio.sleep(0.01)
        assert 10 <= len(looks) <= 25
        looks.clear()
        path.write_text("end")
        await asyncio.sleep(600)
        assert texts == ["begin", "end"]
