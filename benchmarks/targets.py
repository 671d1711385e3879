"""What is to be reached, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.clients import ERAS
from benchmarks.rounds import Figures
from benchmarks.tables import short


@dataclass(frozen=True)
class Target:
    """One of them. `pick` gives the figures that have to reach it; it gets the lines of the row of one package."""

    row: str
    what: str
    bound: float
    unit: str
    pick: Callable[[list[Figures]], Iterable[float | None]]
    is_least: bool = False

    def is_reached(self, value: float) -> bool:
        """Whether a figure is good enough."""
        return value >= self.bound if self.is_least else value <= self.bound

    def line(self, lines: list[Figures]) -> list[str] | None:
        """What was measured, its figures, the target and whether they reach it; None if they were not measured."""
        values = [value for value in self.pick(lines) if value is not None]
        if not values:
            return None
        bound = f"{'≥' if self.is_least else '≤'} {self.bound:g} {self.unit}"
        reached = "reached" if all(map(self.is_reached, values)) else "missed"
        low, high = short(min(values)), short(max(values))
        return [self.what, f"{low} {self.unit}" if low == high else f"{low} – {high} {self.unit}", bound, reached]


def ratios(anchor: str, key: str, **wanted: object) -> Callable[[list[Figures]], list[float | None]]:
    """The ratios to an anchor, of the lines that are about this."""

    def pick(lines: list[Figures]) -> list[float | None]:
        chosen = [line for line in lines if wanted.items() <= line.items()]
        return [line["against"].get(anchor, {}).get(key, [None, None])[1] for line in chosen]

    return pick


def figures(key: str, name: str = "") -> Callable[[list[Figures]], list[float | None]]:
    """A figure of all lines, or of those whose name ends so."""
    return lambda lines: [line.get(key) for line in lines if line["name"].endswith(name)]


def more_children(lines: list[Figures]) -> list[float | None]:
    """With 100 children, against 10."""
    few, many = (
        {line["era"]: line["against"][DIRECT]["p50_ms"][1] for line in lines if line["children"] == children}
        for children in (10, 100)
    )
    return [many[era] / few[era] for era in ERAS]


def tail(lines: list[Figures]) -> list[float | None]:
    """p99 against p50, of all clients together."""
    return [line["p99_ms"] / line["p50_ms"] for line in lines if ", all " in line["name"]]


def growth(lines: list[Figures]) -> list[float | None]:
    """MiB more at the end than after the first seconds."""
    return [line["rss_mb"] - line["rss_mb_before"] for line in lines if "rss_mb_before" in line]


DIRECT, UVICORN, HUB = "direct call", "bare uvicorn", "mcp-hub, REST"
TEAM_CALL = "a call over HTTP with all that a team's hub checks"
TARGETS = [
    Target("stdio", "a call over stdio, 10 servers", 4.5, "× direct", ratios(DIRECT, "p50_ms", children=10)),
    Target("stdio", "the same with 100 servers, against 10", 1.1, "×", more_children),
    Target("stdio", "CPU of a call over stdio", 200, "µs", figures("cpu_us")),
    Target("http", "a call over HTTP", 2.0, "× bare uvicorn", ratios(UVICORN, "p50_ms")),
    Target("http", "calls a second over HTTP, 16 at once", 0.6, "× bare uvicorn", ratios(UVICORN, "calls_per_s"), True),
    Target("team", TEAM_CALL, 3.0, "× bare uvicorn", ratios(UVICORN, "p50_ms")),
    Target("json", "JSON API, 20 at once", 1.5, "× mcp-hub", ratios(HUB, "calls_per_s"), True),
    Target("clients", "30 + 30 clients: p99 of a call", 5, "× p50", tail),
    Target("clients", "30 + 30 clients: p99 of `/ready`", 20, "ms", figures("p99_ms", "/ready")),
    Target("clients", "30 + 30 clients: growth of memory", 5, "MB", growth),
    Target("lists", "repeated list of 1000 tools", 5, "ms", figures("p50_ms")),
    Target("memory", "memory with 10 servers", 90, "MB", figures("rss_mb")),
    Target("starts", "first list after the start, 10 servers", 1.5, "s", figures("first_list_s", ", 10 servers")),
    Target("starts", "first list after the start, 100 servers", 5.5, "s", figures("first_list_s", ", 100 servers")),
]


def reached(rows: Figures, package: str) -> list[list[str]]:
    """The targets of what was measured of a package: what, figures, target, whether it is reached."""
    lines = {name: [line for line in row if line.get("package") == package] for name, row in rows.items()}
    found = (target.line(lines[target.row]) for target in TARGETS if target.row in lines)
    return [line for line in found if line is not None]
