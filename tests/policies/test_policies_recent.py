"""The last hour of calls."""

from __future__ import annotations

from typing import Any

from support.doubles import Clock, call

from fastmcp_aggregator.policies.policy import CallEnd
from fastmcp_aggregator.policies.recent import MINUTES, History


def ended(history: History, server: str, outcome: Any = "ok", seconds: float = 0.01) -> None:
    history.after(call(server=server), CallEnd(outcome, seconds))


def test_calls_are_counted_by_server_and_minute() -> None:
    clock = Clock(6000.0)
    history = History(clock)
    for outcome in ("ok", "error", "tool_error", "denied", "cancelled"):
        ended(history, "a", outcome)
    ended(history, "b")
    clock.now += 120
    ended(history, "a")
    found = history.of(["a", "b"])
    assert [minute[:3] for minute in found["a"]] == [[2, 4, 2], [0, 1, 0]]
    assert [minute[:3] for minute in found["b"]] == [[2, 1, 0]]
    assert [minute[:3] for minute in found[""]] == [[2, 5, 2], [0, 1, 0]]


def test_the_quantile_is_about_right() -> None:
    history = History(Clock(6000.0))
    for number in range(1000):
        ended(history, "a", seconds=2.0 if number >= 980 else 0.02)
    ended(history, "b", seconds=0.0)
    found = history.of(["a", "b"])
    assert 2.0 <= found["a"][0][3] <= 2.9
    assert found["b"][0][3] <= 0.001


def test_an_hour_is_kept_and_servers_that_are_gone_are_forgotten() -> None:
    clock = Clock(6000.0)
    history = History(clock)
    for _ in range(MINUTES + 30):
        ended(history, "a")
        ended(history, "gone")
        clock.now += 60
    clock.now -= 60
    assert len(history.of(["a"])["a"]) == MINUTES
    assert history.of(["a"]).keys() == {"a", ""}
    clock.now += 3600
    assert history.of(["a"]) == {}
