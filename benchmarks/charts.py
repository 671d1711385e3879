"""Bar charts as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.tables import short

STYLE = """rect{fill:#4a7fb5} rect.anchor{fill:#b9c4cf} rect.before{fill:#c9a25e} rect.ground{fill:#fff}
text{font-family:system-ui,sans-serif;fill:#1d2733;font-size:13px} text.name{text-anchor:end}
text.title{font-size:14px;font-weight:600} line{stroke:#1d2733;stroke-width:1.2}"""
WIDTH, LEFT, RIGHT, TOP, STEP, BAR = 860, 290, 110, 46, 26, 16


@dataclass(frozen=True)
class Bar:
    """One bar; `quartiles` are drawn on it. `kind` is anchor, before or empty."""

    name: str
    value: float
    kind: str = ""
    quartiles: tuple[float, float] | None = None


def chart(title: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars from 0, each with its value."""
    height = TOP + STEP * len(bars) + 10
    largest = max(max(bar.value, (bar.quartiles or (0, 0))[1]) for bar in bars)
    scale = (WIDTH - LEFT - RIGHT) / largest
    said = "; ".join(f"{bar.name}: {short(bar.value)}" for bar in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(f"{title}. {said}", quote=True)}">',
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="ground" x="0" y="0" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="20" y="28">{escape(title)}</text>',
    ]
    for number, bar in enumerate(bars):
        parts += drawn(bar, TOP + STEP * number, scale)
    return "\n".join([*parts, "</svg>", ""])


def drawn(bar: Bar, y: float, scale: float) -> list[str]:
    """A bar, its name, its value and its quartiles."""
    end = LEFT + bar.value * scale
    parts = [
        f'<text class="name" x="{LEFT - 10}" y="{y + 13}">{escape(bar.name)}</text>',
        f'<rect class="{bar.kind or "bar"}" x="{LEFT}" y="{y}" width="{max(1.0, end - LEFT):.1f}" height="{BAR}"/>',
    ]
    if bar.quartiles:
        low, high = (LEFT + value * scale for value in bar.quartiles)
        middle = y + BAR / 2
        parts.append(f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}"/>')
        end = max(end, high)
    return [*parts, f'<text x="{end + 8:.1f}" y="{y + 13}">{short(bar.value)}</text>']
