"""Recent calls and their outcomes, for people who look: the last ones, and the last hour by the minute.

Of the last calls: who called what, for how long, and what came of it. Neither arguments nor results are kept, nor
anything that repeats them: a URI that was read is an argument, so only its scheme is kept, and a refusal's reason,
which may quote what it refuses, is left out. Of the last hour, by server and minute: how many calls, how many failed,
and how long they took; for sparklines.
"""

from __future__ import annotations

import itertools
import secrets
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.policies.policy import CallEnd, Outcome, Policy

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call


KEPT = 1000
"""Calls that are kept, at most."""
_NAME_LIMIT = 256
MINUTES = 60
_FAILED = ("error", "tool_error")
_STEPS = 2
"""Classes of durations for each doubling."""
_SHORTEST = 0.001
"""Seconds: the first class."""
_CLASSES = 40
_QUANTILE = 0.99


@dataclass(eq=False)
class RecentCall:
    """One call that has ended: `ended` seconds after calls began to be kept, when it had taken `seconds`."""

    principal: Principal
    group: str
    method: str
    server: str
    name: str
    outcome: Outcome
    code: int | None
    seconds: float
    ended: float
    trace_id: str

    @cached_property
    def id(self) -> str:
        """Made when somebody first looks; it tells nothing of how many others there were."""
        return secrets.token_hex(8)


class RecentCalls(Policy):
    """Keeps the last calls, and gives each who looks those that it may see."""

    def __init__(self, kept: int = KEPT) -> None:
        self._calls: deque[RecentCall] = deque(maxlen=kept)
        self._began = time.monotonic()
        self.count = 0
        """Calls that have ended."""

    @property
    def now(self) -> float:
        """Seconds since calls began to be kept."""
        return time.monotonic() - self._began

    def after(self, call: Call, end: CallEnd) -> None:
        if call.target.child is None:
            return
        self.count += 1
        self._calls.append(
            RecentCall(
                call.caller.principal,
                call.group,
                call.method,
                call.target.child.key,
                _name(call)[:_NAME_LIMIT],
                end.outcome,
                end.code,
                end.seconds,
                call.began + end.seconds - self._began,
                call.caller.trace_id,
            )
        )

    def latest(self, count: int, may_see: Callable[[RecentCall], bool]) -> list[RecentCall]:
        """The last ones among those that may be seen, latest first."""
        visible = (call for call in reversed(self._calls) if may_see(call))
        return list(itertools.islice(visible, count))


def _name(call: Call) -> str:
    where = call.target.address.get("ref") or call.target.address
    if "name" in where:
        return str(where["name"])
    scheme, separator, _ = str(where.get("uri", "")).partition("://")
    return scheme + separator + "…" if separator else "…"


@dataclass(slots=True)
class Minute:
    """The calls that ended in one minute, which is numbered from the start of the clock."""

    number: int
    calls: int = 0
    failed: int = 0
    durations: list[int] = field(default_factory=lambda: [0] * _CLASSES)
    """Calls by class of duration."""

    @property
    def p99(self) -> float:
        """Seconds that 99 in 100 calls did not exceed, to about a third more."""
        passed = itertools.accumulate(self.durations)
        index = next(index for index, count in enumerate(passed) if count >= self.calls * _QUANTILE)
        return float(_SHORTEST * 2 ** (index / _STEPS))


_LONGEST = [_SHORTEST * 2 ** (index / _STEPS) for index in range(_CLASSES - 1)]
"""Seconds that a call of each class takes at most, but for the last."""


class History(Policy):
    """Counts each call when it ends, for an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minutes: dict[str, deque[Minute]] = {}

    def after(self, call: Call, end: CallEnd) -> None:
        if call.target.child is not None and end.outcome != "denied":
            number, has_failed = int(self._clock() / 60), end.outcome in _FAILED
            index = bisect_left(_LONGEST, end.seconds)
            for key in (call.target.child.key, ""):
                minutes = self._minutes.get(key)
                minute = minutes[-1] if minutes and minutes[-1].number == number else self._begun(key, number)
                minute.calls += 1
                minute.failed += has_failed
                minute.durations[index] += 1

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

    def _begun(self, key: str, number: int) -> Minute:
        minute = Minute(number)
        self._minutes.setdefault(key, deque(maxlen=MINUTES)).append(minute)
        return minute
