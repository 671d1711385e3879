"""The figures of a row as a table, for a terminal or for a page."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rounds import Figures

HEADINGS = {
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_us": "CPU µs",
    "calls_per_s": "calls/s",
    "cpu_us_at_once": "CPU µs, at once",
    "rss_mb": "MB",
    "rss_mb_before": "MB before",
    "first_list_s": "first list s",
    "absent": "",
}
"""What is measured, in the order of the columns."""


def table(row: Sequence[Figures]) -> str:
    """For a terminal."""
    lines = cells(row)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(aligned(line, widths)) for line in lines)


def page_table(row: Sequence[Figures], label: str) -> str:
    """For a page; the names are without the package's label, if it is the only one."""
    head, *lines = cells(row)
    is_only = len({figures["package"] for figures in row if "package" in figures}) == 1
    names = [line[0].removeprefix(f"{label}, ") if is_only else line[0] for line in lines]
    shown = [head, ["---"] * len(head), *([name, *line[1:]] for name, line in zip(names, lines, strict=True))]
    return "\n".join(f"| {' | '.join(line)} |" for line in shown)


def cells(row: Sequence[Figures]) -> list[list[str]]:
    """A line for each subject, after one of headings: what was measured, and the ratios with their quartiles."""
    keys = [key for key in HEADINGS if any(key in figures for figures in row)]
    ratios = list(dict.fromkeys(ratio for figures in reversed(row) for ratio in ratios_of(figures)))
    lines = [["", *(HEADINGS[key] for key in keys), *(f"{HEADINGS[key]}, × {anchor}" for anchor, key in ratios)]]
    for figures in row:
        given = ratios_of(figures)
        measured = [short(figures.get(key)) for key in keys]
        lines.append([figures["name"], *measured, *(quartiles(given.get(ratio)) for ratio in ratios)])
    return lines


def ratios_of(figures: Figures) -> dict[tuple[str, str], list[float]]:
    """The ratios of a subject, by anchor and figure; without those of an anchor to itself."""
    return {
        (anchor, key): ratio
        for anchor, by_key in figures["against"].items()
        for key, ratio in by_key.items()
        if anchor != figures["name"]
    }


def aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The cells of a line: names to the left, figures to the right."""
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]


def short(value: object) -> str:
    """A figure with three digits."""
    if not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def quartiles(ratio: Sequence[float] | None) -> str:
    """A ratio, and between which quartiles."""
    return f"{short(ratio[1])} [{short(ratio[0])}–{short(ratio[2])}]" if ratio else ""
