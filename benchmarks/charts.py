"""Bar charts as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.tables import short

STYLE = """rect{fill:#4a7fb5} rect.anchor{fill:#b9c4cf} rect.before{fill:#c9a25e} rect.ground{fill:#fff}
text{font-family:system-ui,sans-serif;fill:#1d2733;font-size:13px} text.name{text-anchor:end}
text.title{font-size:14px;font-weight:600}"""
WIDTH, LEFT, RIGHT, TOP, STEP, BAR = 860, 290, 110, 46, 26, 16


@dataclass(frozen=True)
class Bar:
    """One bar. `kind` is anchor, before or empty."""

    name: str
    value: float
    kind: str = ""


def chart(title: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars from 0, each with its value."""
    height = TOP + STEP * len(bars) + 10
    scale = (WIDTH - LEFT - RIGHT) / max(bar.value for bar in bars)
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
    """A bar, its name and its value."""
    length = max(1.0, bar.value * scale)
    return [
        f'<text class="name" x="{LEFT - 10}" y="{y + 13}">{escape(bar.name)}</text>',
        f'<rect class="{bar.kind or "bar"}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}"/>',
        f'<text x="{LEFT + length + 8:.1f}" y="{y + 13}">{short(bar.value)}</text>',
    ]
