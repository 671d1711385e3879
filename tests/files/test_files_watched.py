"""Files of servers' code: which changes are told, and to whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.harness import PATIENCE, until

from fastmcp_aggregator.files import watched


async def test_watching_tells_which_server_has_changed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[Path, asyncio.Queue[None]] = {Path("a"): asyncio.Queue(), Path("b"): asyncio.Queue()}

    async def changes_in(paths: Sequence[Path]) -> AsyncIterator[None]:
        while True:
            yield await changes[paths[0]].get()

    monkeypatch.setattr(watched, "_changes_in", changes_in)
    told: asyncio.Queue[str] = asyncio.Queue()
    async with watched.watching({"one": [Path("a")], "two": [Path("b")]}, told.put_nowait):
        changes[Path("b")].put_nowait(None)
        assert await told.get() == "two"
        changes[Path("a")].put_nowait(None)
        assert await told.get() == "one"


async def test_watching_what_is_not_there_is_said_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with watched.watching({"one": [tmp_path / "none"]}, print):
            async with asyncio.timeout(PATIENCE):
                while not caplog.records:
                    await asyncio.sleep(0)
    assert "server 'one' is not restarted when its files change" in caplog.text


@pytest.mark.process
async def test_watching_hears_of_a_file_that_is_written_but_not_of_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__pycache__").mkdir()
    seen: list[Path] = []
    changes_in = watched._changes_in

    async def seen_changes_in(paths: Sequence[Path]) -> AsyncIterator[object]:
        async for changes in changes_in(paths):
            seen.extend(Path(path) for _, path in changes)  # type: ignore[attr-defined]
            yield changes

    monkeypatch.setattr(watched, "_changes_in", seen_changes_in)
    told: asyncio.Queue[str] = asyncio.Queue()
    async with watched.watching({"one": [tmp_path]}, told.put_nowait), asyncio.timeout(PATIENCE):
        while told.empty():  # until the watch has begun
            (tmp_path / "server.py").write_text("x")
            await asyncio.sleep(0.1)
        (tmp_path / "__pycache__" / "server.pyc").write_text("x")
        (tmp_path / "after.py").write_text("x")  # changes are heard of in their order
        await until(lambda: tmp_path / "after.py" in seen)
    assert {path.parent for path in seen} == {tmp_path}
