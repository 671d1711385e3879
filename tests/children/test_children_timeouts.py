"""Timeouts that share a timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fastmcp_aggregator.children.session import direct
from fastmcp_aggregator.children.session.direct import Timeouts


class Loop:
    """An event loop whose time goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], Any]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], Any]) -> object:
        self.timers.append((when, call))
        return object()

    def call_soon(self, call: Callable[[], Any]) -> None:
        call()

    def run_until(self, now: float) -> None:
        while due := [timer for timer in sorted(self.timers, key=lambda timer: timer[0]) if timer[0] <= now]:
            self.timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = now


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(direct.asyncio, "get_running_loop", lambda: made)
    return made


def test_each_expires_in_its_time_and_not_if_it_has_ended(loop: Loop) -> None:
    expired: list[tuple[str, float]] = []
    limits = Timeouts(10)
    for start, name in ((100, "a"), (102, "b"), (105, "c")):
        loop.run_until(start)
        limits.begin(name, lambda name=name: expired.append((name, loop.now)))
    limits.end("b")
    limits.end("b")
    loop.run_until(200)
    assert expired == [("a", 110), ("c", 115)]


def test_many_share_one_timer_and_none_is_left_without_them(loop: Loop) -> None:
    limits = Timeouts(10)
    for number in range(1000):
        limits.begin(number, lambda: None)
        assert len(loop.timers) == 1
        limits.end(number)
    loop.run_until(111)
    assert loop.timers == []
    limits.begin("later", lambda: None)
    assert len(loop.timers) == 1


def test_they_begin_anew_in_another_event_loop(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, expired = Timeouts(10), list[str]()
    limits.begin("lost with its loop", lambda: None)
    limits.end("lost with its loop")
    another = Loop()
    monkeypatch.setattr(direct.asyncio, "get_running_loop", lambda: another)
    limits.begin("a", lambda: expired.append("a"))
    another.run_until(110)
    assert expired == ["a"]
