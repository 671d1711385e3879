"""The calls that have ended last, for people who look: who called what, for how long, and what came of it.

Neither arguments nor results are kept, nor anything that repeats them: a URI that was read is an argument, so only its
scheme is kept, and a refusal's reason, which may quote what it refuses, is left out.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.policies.policy import CallEnd, Outcome, Policy

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call


KEPT = 1000
"""Calls that are kept, at most."""
_NAME_LIMIT = 256


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
        if call.destination is None:
            return
        self.count += 1
        self._calls.append(
            RecentCall(
                call.caller.principal,
                call.group,
                call.method,
                call.destination.key,
                _name(call)[:_NAME_LIMIT],
                end.outcome,
                end.code,
                end.seconds,
                call.began + end.seconds - self._began,
                call.trace_id,
            )
        )

    def latest(self, count: int, may_see: Callable[[RecentCall], bool]) -> list[RecentCall]:
        """The last ones among those that may be seen, latest first."""
        visible = (call for call in reversed(self._calls) if may_see(call))
        return list(itertools.islice(visible, count))


def _name(call: Call) -> str:
    where = call.address.get("ref") or call.address
    if "name" in where:
        return str(where["name"])
    scheme, separator, _ = str(where.get("uri", "")).partition("://")
    return scheme + separator + "…" if separator else "…"
