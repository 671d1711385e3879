"""The last hour of calls by server and minute: how many, how many failed, and how long they took; for sparklines."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.policies.policy import CallEnd, Policy

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call

MINUTES = 60
_FAILED = ("error", "tool_error")
_STEPS = 2
"""Classes of durations for each doubling."""
_SHORTEST = 0.001
"""Seconds: the first class."""
_CLASSES = 40
_QUANTILE = 0.99


@dataclass(slots=True)
class Minute:
    """The calls that ended in one minute, which is numbered from the start of the clock."""

    number: int
    calls: int = 0
    failed: int = 0
    durations: list[int] = field(default_factory=lambda: [0] * _CLASSES)

    def add(self, seconds: float, *, has_failed: bool) -> None:
        self.calls += 1
        self.failed += has_failed
        place = 0 if seconds <= _SHORTEST else math.ceil(math.log2(seconds / _SHORTEST) * _STEPS)
        self.durations[min(place, _CLASSES - 1)] += 1

    @property
    def p99(self) -> float:
        """Seconds that 99 in 100 calls did not exceed, to about a third more."""
        passed = itertools.accumulate(self.durations)
        place = next(place for place, count in enumerate(passed) if count >= self.calls * _QUANTILE)
        return float(_SHORTEST * 2 ** (place / _STEPS))


class History(Policy):
    """Counts each call when it ends, for an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minutes: dict[str, deque[Minute]] = {}

    def after(self, call: Call, end: CallEnd) -> None:
        if call.destination is not None and end.outcome != "denied":
            number = int(self._clock() / 60)
            for key in (call.destination.key, ""):
                self._at(key, number).add(end.seconds, has_failed=end.outcome in _FAILED)

    def of(self, keys: Collection[str]) -> dict[str, list[list[Any]]]:
        """By server key, and `""` for all: of each minute with calls its age, the calls, the failed ones, and the p99
        in seconds. Servers that are not among `keys` are forgotten.
        """
        now = int(self._clock() / 60)
        for key in self._minutes.keys() - {*keys, ""}:
            del self._minutes[key]
        return {
            key: [[now - each.number, each.calls, each.failed, round(each.p99, 4)] for each in minutes]
            for key, found in self._minutes.items()
            if (minutes := [each for each in found if now - each.number < MINUTES])
        }

    def _at(self, key: str, number: int) -> Minute:
        minutes = self._minutes.get(key)
        if minutes is None:
            minutes = self._minutes[key] = deque(maxlen=MINUTES)
        if not minutes or minutes[-1].number != number:
            minutes.append(Minute(number))
        return minutes[-1]
