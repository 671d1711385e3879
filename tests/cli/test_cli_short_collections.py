"""Garbage collections while the program serves: what survives one is not looked at by the next ones, for a while."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from fastmcp_aggregator.cli.running.short_collections import short_collections


class Circle:
    def __init__(self) -> None:
        self.own = self


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    """What the tests before have left is set aside; only what is made here is looked at."""
    clock = Clock()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with short_collections(clock):
            yield clock
    finally:
        gc.unfreeze()
        gc.enable()


def test_what_survives_is_set_aside(clock: Clock) -> None:
    before = gc.get_freeze_count()
    kept = [[number] for number in range(1000)]
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects()) < 1000


def test_new_circles_are_collected(clock: Clock) -> None:
    found = weakref.ref(Circle())
    gc.collect()
    assert found() is None


def test_old_circles_are_collected_once_it_is_worth_it(clock: Clock) -> None:
    circle = Circle()
    found = weakref.ref(circle)
    gc.collect()
    del circle
    kept = [[] for _ in range(gc.get_freeze_count() // 2)]
    gc.collect()
    gc.collect()
    assert found() is not None
    clock.now += 601
    gc.collect()
    gc.collect()
    assert found() is None
    assert gc.get_freeze_count() > len(kept)


def test_where_there_is_hardly_more_nothing_is_looked_at_again(clock: Clock) -> None:
    clock.now += 601
    gc.collect()
    assert gc.get_freeze_count() > 0
