"""Figures: what was promised, what was measured, and how a run of them is shown."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One promise under one fault. Kept when `measured` is at most `limit`, or is it, where it is `exact`."""

    fault: str
    promise: str
    limit: float
    measured: float
    unit: str = ""
    note: str = ""
    exact: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether the promise was kept."""
        return self.measured == self.limit if self.exact else self.measured <= self.limit

    def row(self) -> tuple[str, str, str]:
        """The figure in words: fault, promise, measured."""
        relation = "" if self.exact else "≤ "
        promised = f"{self.promise}: {relation}{_number(self.limit)} {self.unit}".rstrip()
        measured = f"{_number(self.measured)} {self.unit}".rstrip() + (f" ({self.note})" if self.note else "")
        return self.fault, promised, measured if self.is_kept else f"**missed**: {measured}"


def percentile(samples: Iterable[float], fraction: float) -> float:
    """The sample below which the fraction of all lies."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


Windows = Sequence[Sequence[float]]
"""The seconds that the calls in each of several windows of time took."""


def ratio(fault: str, limit: float, quiet: Windows, during: Windows) -> Figure:
    """How much longer others wait during a fault: the p99 of their calls, against that of quiet times.

    It is the median over several windows of each, so that what else the machine does at some moment hits neither.
    """
    before, under = typical_p99(quiet), typical_p99(during)
    calls = f"{sum(map(len, quiet))} and {sum(map(len, during))} calls"
    note = f"{before * 1000:.1f} → {under * 1000:.1f} ms, {calls} in {len(during)} windows each"
    return Figure(fault, "p99 of calls to others", limit, under / before, "×", note)


def typical_p99(windows: Windows) -> float:
    """The p99 of a typical window, in seconds."""
    return percentile((percentile(window, 0.99) for window in windows if window), 0.5)


def soon(fault: str, promise: str, limit: float, seconds: Sequence[float]) -> Figure:
    """How soon something happens nine times in ten: the machine has other things to do. `limit` is in milliseconds."""
    many = f"9 in 10 of {len(seconds)}, worst {_number(max(seconds) * 1000)}"
    return Figure(fault, promise, limit, percentile(seconds, 0.9) * 1000, "ms", many if len(seconds) > 1 else "")


def machine() -> dict[str, Any]:
    """Where and when this runs."""
    return {
        "system": platform.system(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def table(figures: Iterable[Figure]) -> str:
    """A table in Markdown, which names each fault once."""
    rows = [("fault", "promised", "measured"), ("---",) * 3]
    last = ""
    for figure in figures:
        fault, *rest = figure.row()
        rows.append(("" if fault == last else fault, *rest))
        last = fault
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def as_json(figures: Iterable[Figure]) -> dict[str, Any]:
    """The same for programs."""
    return {"machine": machine(), "figures": [asdict(figure) | {"is_kept": figure.is_kept} for figure in figures]}


def _number(value: float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2g}"
