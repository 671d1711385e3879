"""Writes the figures of a run into the documentation: `python -m benchmarks.page [FILE]`.

The file becomes `docs/benchmarks.json`; the tables of `docs/benchmarks.md` and its charts are made of it alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.charts import Bar, charts_of
from benchmarks.programs import ROOT
from benchmarks.rounds import Figures
from benchmarks.tables import page_table
from benchmarks.targets import reached

DOCS = ROOT / "docs"
FILE = DOCS / "benchmarks.json"
PAGE = DOCS / "benchmarks.md"
IMAGES = DOCS / "images"


def parts(results: Figures) -> dict[str, str]:
    """What stands between the marks of the page, by their names."""
    label = measured(results)
    named = {name: page_table(row, label) for name, row in results["rows"].items()}
    return named | {"machine": machine(results), "targets": targets(results, label)}


def measured(results: Figures) -> str:
    """The label of the package that the page is about: the last."""
    labels: list[str] = [*results["packages"]]
    return labels[-1]


def machine(results: Figures) -> str:
    """Where, when and with what it was measured."""
    about, package = results["machine"], results["packages"][measured(results)]
    versions = ", ".join(f"{name} {version}" for name, version in package["versions"].items() if version)
    changes = " and changes" if package["is_changed"] else ""
    hub = f", mcp-hub {about['mcp_hub']}" if about["mcp_hub"] else ""
    return (
        f"Measured on {about['date']} at commit `{package['commit']}`{changes}: "
        f"{about['system']}, {about['cores']} cores of {about['processor']}, load {about['load']} at the start, "
        f"Python {package['python']}, {versions}{hub}; {results['size']['rounds']} rounds."
    )


def targets(results: Figures, label: str) -> str:
    """What is to be reached, beside what was measured."""
    lines = [["measured", "figure", "target", ""], ["---"] * 4, *reached(results["rows"], label)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def charts(results: Figures) -> dict[str, str]:
    """The charts, by the names of their files."""
    rows = results["rows"]
    wanted = {
        "bench-stdio": ("stdio", "p50_ms", "A call over stdio: median, ms"),
        "bench-http": ("http", "p50_ms", "A call over HTTP: median, ms"),
        "bench-http-at-once": ("http", "calls_per_s", "Calls a second over HTTP, 16 at once"),
        "bench-json": ("json", "calls_per_s", "Calls a second of the JSON API, 20 at once"),
    }
    label = measured(results)
    drawn = [
        charts_of(name, title, [bar(figures, key, label) for figures in rows[row] if key in figures])
        for name, (row, key, title) in wanted.items()
        if row in rows
    ]
    return {file: text for charts in drawn for file, text in charts.items()}


def bar(figures: Figures, key: str, label: str) -> Bar:
    """The bar of a subject."""
    package = figures.get("package")
    kind = "anchor" if package is None else "" if package == label else "before"
    return Bar(figures["name"].removeprefix(f"{label}, "), figures[key], kind)


def written(page: str, parts: Mapping[str, str]) -> str:
    """The page with these parts between its marks. What was not measured stays as it is."""
    for name, text in parts.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        before, has_begin, rest = page.partition(begin)
        _, has_end, after = rest.partition(end)
        if has_begin and has_end:
            page = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return page


def write(parts: Mapping[str, str], drawings: Mapping[str, str]) -> None:
    """Write parts of the page, and its charts."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
    for name, text in drawings.items():
        (IMAGES / name).write_text(text, encoding="utf-8")


def main() -> None:
    """Write all of it."""
    parser = argparse.ArgumentParser(prog="benchmarks.page", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=Path(__file__).parent / "results.json")
    results = json.loads(parser.parse_args().file.read_text())
    FILE.write_text(json.dumps(results, indent=1) + "\n")
    write(parts(results), charts(results))


if __name__ == "__main__":
    main()
