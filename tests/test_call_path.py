"""The way of one `tools/call` through the package: how many files it crosses, how often it changes between them, and
how many of its coroutines await each other.

A reader of the code makes the same way. It is traced in this process, with real servers of both eras.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import CO_COROUTINE
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.harness import RawClient, config, connected, lean, until
from support.serving import served

import fastmcp_aggregator
from fastmcp_aggregator import build_aggregator

pytestmark = pytest.mark.process

ROOT = str(Path(fastmcp_aggregator.__file__).parent) + "/"


def stack_of(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_ours(frame: FrameType) -> bool:
    """Whether it is of a coroutine of the package."""
    return frame.f_code.co_filename.startswith(ROOT) and bool(frame.f_code.co_flags & CO_COROUTINE)


@dataclass
class Way:
    """The files of the package whose functions were called, in order, each as often as it was entered from another."""

    stops: list[str] = field(default_factory=list)
    frames: int = 0
    awaits: int = 0
    """Coroutines of the package that awaited each other, at most."""
    _seen: set[int] = field(default_factory=set)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(ROOT) or frame.f_code.co_name.startswith("<"):
            return
        if id(frame) in self._seen and frame.f_code.co_flags & 0x2A0:  # a coroutine or generator that goes on: no call
            return
        if frame.f_code.co_flags & CO_COROUTINE:
            self.awaits = max(self.awaits, sum(map(is_ours, stack_of(frame))))
        self._seen.add(id(frame))
        self._keep.append(frame)
        self.frames += 1
        file = name.removeprefix(ROOT)
        if not self.stops or self.stops[-1] != file:
            self.stops.append(file)

    def __post_init__(self) -> None:
        self._keep: list[FrameType] = []
        """So that no id is used twice."""

    @property
    def files(self) -> set[str]:
        return set(self.stops)

    @property
    def changes(self) -> int:
        return len(self.stops) - 1


@asynccontextmanager
async def client_of(app: Any, front: str, *, modern: bool) -> AsyncIterator[RawClient]:
    if front == "pipe":
        async with connected(app, modern=modern) as client:
            yield client
    else:
        async with served(app) as front:
            yield await front.connect(modern=modern, keep_alive=True)


@pytest.mark.parametrize("server", ["legacy", "modern"])
@pytest.mark.parametrize("client", ["legacy", "modern"])
@pytest.mark.parametrize(
    ("fast_path", "front", "most_files", "most_changes", "most_awaits"),
    [(False, "pipe", 20, 35, 10), (False, "http", 29, 60, 11), (True, "pipe", 20, 34, 0), (True, "http", 30, 60, 10)],
)
async def test_call_crosses_few_files(
    fast_path: bool, front: str, most_files: int, most_changes: int, most_awaits: int, client: str, server: str
) -> None:
    app = build_aggregator(config(a=lean(era=server)), fast_path=fast_path)
    if front == "pipe":
        app._backend.profile.expect_one()  # as on stdio
    async with client_of(app, front, modern=client == "modern") as caller:
        await caller.call("a:echo")
        ways = []
        for _ in range(6):
            await until(lambda: app._backend.admission.counts() == (0, 0))
            ways.append(Way())
            sys.setprofile(ways[-1].profile)
            try:
                await caller.call("a:echo")
            finally:
                sys.setprofile(None)
    way = min(ways, key=lambda way: way.changes)  # what else happens meanwhile is no part of a call's way
    told = f"{len(way.files)} files, {way.changes} changes, {way.frames} frames, {way.awaits} awaits\n" + "\n".join(
        way.stops
    )
    assert len(way.files) <= most_files, told
    assert way.changes <= most_changes, told
    assert way.awaits <= most_awaits, told
