"""Bar charts as SVG, for light and for dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import pygal
from pygal.style import Style

from benchmarks.tables import short

WIDTH, TOP, STEP = 860, 56, 27
COLORS = {
    "light": {"text": "#1d2733", "lines": "#c4ccd4", "": "#3f6fa8", "anchor": "#aab6c2", "before": "#c08f3f"},
    "dark": {"text": "#dbe2ea", "lines": "#4a5561", "": "#7fb0e6", "anchor": "#6d7a88", "before": "#d9ae63"},
}
"""By theme: text, lines, and bars by their kind."""


@dataclass(frozen=True)
class Bar:
    """One bar. `kind` is anchor, before or empty."""

    name: str
    value: float
    kind: str = ""


def charts_of(name: str, title: str, bars: Sequence[Bar], *, is_logarithmic: bool = False) -> dict[str, str]:
    """Horizontal bars, each with its value, in a file for each theme."""
    return {f"{name}-{theme}.svg": chart(name, title, bars, theme, is_logarithmic) for theme in COLORS}


def chart(name: str, title: str, bars: Sequence[Bar], theme: str, is_logarithmic: bool) -> str:
    """The chart for one theme."""
    colors = COLORS[theme]
    drawing = pygal.HorizontalBar(
        style=style(colors),
        title=title,
        width=WIDTH,
        height=TOP + STEP * len(bars),
        show_legend=False,
        print_values=True,
        print_values_position="top",
        show_x_labels=False,
        logarithmic=is_logarithmic,
        range=extent([bar.value for bar in bars], is_logarithmic),
        spacing=0,
        zero=min(bar.value for bar in bars) / 2 if is_logarithmic else 0,
        js=[],
    )
    drawing.uuid = f"{name}-{theme}"
    upwards = bars[::-1]
    drawing.x_labels = [bar.name for bar in upwards]
    drawing.add("", [{"value": bar.value, "color": colors[bar.kind]} for bar in upwards], formatter=beside)
    return still(drawing.render_tree(), f"{title}. {'; '.join(f'{bar.name}: {short(bar.value)}' for bar in bars)}")


def extent(values: Sequence[float], is_logarithmic: bool) -> tuple[float, float]:
    """From where to where the axis goes: from 0, or from a bit under the least, with room for the longest's value."""
    return (min(values) / 2, max(values) * 2) if is_logarithmic else (0, max(values) * 1.1)


def beside(value: float) -> str:
    """A value as it stands at the end of its bar."""
    return f"\u2003\u2003\u2003{short(value)}"


def style(colors: dict[str, str]) -> Style:
    """The colours of a theme, on whatever is behind the chart."""
    return Style(
        background="transparent",
        plot_background="transparent",
        foreground=colors["text"],
        foreground_strong=colors["text"],
        foreground_subtle=colors["lines"],
        guide_stroke_color=colors["lines"],
        major_guide_stroke_color=colors["lines"],
        value_colors=(colors["text"],),
        font_family="system-ui, sans-serif",
        title_font_size=15,
        label_font_size=13,
        major_label_font_size=13,
        value_font_size=13,
        opacity="1",
        opacity_hover="1",
    )


def still(drawing: ElementTree.Element, said: str) -> str:
    """The drawing as text, without scripts and the date of its making, and with what it shows in words."""
    for parent in list(drawing.iter()):
        for child in list(parent):
            if child.tag is ElementTree.Comment or str(child.tag).endswith("script"):
                parent.remove(child)
    drawing.set("role", "img")
    drawing.set("aria-label", said)
    return ElementTree.tostring(drawing, encoding="unicode") + "\n"
