"""The figures of a row as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.rounds import Figures

HEADINGS = {
    "p50_ms": "p50 ms",
    "cpu_us": "CPU µs",
    "calls_per_s": "calls/s",
    "cpu_us_at_once": "CPU µs @16",
    "rss_mb": "RSS MB",
}
TEXTS = ("package", "era", "children", "name")
"""What is said of a subject, and not measured."""


def table(row: Sequence[Figures]) -> str:
    """A line for each subject: what was measured, and the ratios with their quartiles."""
    keys = list(dict.fromkeys(key for figures in row for key in figures if key not in (*TEXTS, "against")))
    ratios = list(dict.fromkeys(ratio for figures in row for ratio in ratios_of(figures)))
    lines = [
        ["", *(HEADINGS.get(key, key) for key in keys), *(f"{HEADINGS[key]} × {anchor}" for anchor, key in ratios)]
    ]
    for figures in row:
        cells = [short(figures.get(key)) for key in keys]
        given = ratios_of(figures)
        lines.append([figures["name"], *cells, *(quartiles(given.get(ratio)) for ratio in ratios)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(aligned(line, widths)) for line in lines)


def ratios_of(figures: Figures) -> dict[tuple[str, str], list[float]]:
    """The ratios of a subject, by anchor and figure."""
    return {(anchor, key): ratio for anchor, by_key in figures["against"].items() for key, ratio in by_key.items()}


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
