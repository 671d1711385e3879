"""Counters of the fast path: requests that it answered, declined and handed over, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class PathCounts:
    answered: int = 0
    """Requests that the fast path has answered."""
    declined: Counter[str] = field(default_factory=Counter)
    """Requests left to the full path before anything was done, by reason."""
    taken_over: Counter[str] = field(default_factory=Counter)
    """Requests that the full path has taken over, by reason."""

    def samples(self) -> Iterator[tuple[str, str, int]]:
        """Each outcome with its reason and count."""
        yield "answered", "", self.answered
        for reason, count in self.declined.items():
            yield "declined", reason, count
        for reason, count in self.taken_over.items():
            yield "taken over", reason, count
