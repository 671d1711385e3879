"""The figures of the runs: for the terminal, for `docs/conformance.md`, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from real.install_servers import Pins

from conformance.comparison import Difference, Run, Verdict
from conformance.suite import Status

HEADINGS = ("set-up", "spec version", "scenarios", "checks passed", "failed", "warnings", "skipped", "seconds")
BEGIN, END = "<!-- conformance: begin -->", "<!-- conformance: end -->"


@dataclass(frozen=True, slots=True)
class Figures:
    """What is counted of one or more runs. A scenario passes, as the suite sees it, if no check of it fails."""

    scenarios_passed: int
    scenarios: int
    checks: Mapping[Status, int]
    seconds: float


def figures(runs: Sequence[Run]) -> Figures:
    """Count."""
    scenarios = [checks for run in runs for checks in run.results.values()]
    return Figures(
        scenarios_passed=sum(all(check.status is not Status.FAILURE for check in checks) for checks in scenarios),
        scenarios=len(scenarios),
        checks=dict(Counter(check.status for checks in scenarios for check in checks)),
        seconds=round(sum(run.seconds for run in runs), 1),
    )


def rows(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """One row for each run, and one for each set-up as a whole."""
    for setup in dict.fromkeys(run.setup for run in runs):
        own = [run for run in runs if run.setup == setup]
        for run in own:
            yield (setup, run.spec_version, *_cells(figures([run])))
        if len(own) > 1:
            yield (setup, "all", *_cells(figures(own)))


def _cells(counted: Figures) -> Iterator[str]:
    yield f"{counted.scenarios_passed} of {counted.scenarios}"
    for status in (Status.SUCCESS, Status.FAILURE, Status.WARNING, Status.SKIPPED):
        yield str(counted.checks.get(status, 0))
    yield f"{counted.seconds:.1f}"


def text_table(runs: Sequence[Run]) -> str:
    """The rows, with aligned columns."""
    table = [HEADINGS, *rows(runs)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)
    return "\n".join(map(str.rstrip, lines))


def text_verdict(verdict: Verdict) -> str:
    """Every difference with its message, then whether that is good."""
    lines = [*_by_run("EXPECTED", [item for item, _ in verdict.expected]), *_by_run("DIFFERENT", verdict.unexpected)]
    lines += [f"STALE {address}: it passes, take it out of expected_failures.toml" for address in verdict.stale]
    lines.append("Good." if verdict.is_good else f"{len(verdict.unexpected)} different, {len(verdict.stale)} stale.")
    return "\n".join(lines)


def _by_run(title: str, items: Sequence[Difference]) -> Iterator[str]:
    for run, own in groupby(items, lambda item: f"{item.address.setup}, {item.address.spec_version}"):
        yield f"{title}: {run}"
        for item in own:
            counts = f"passed {item.passed}, directly {item.passed_directly}"
            yield f"  {item.address.scenario}, {item.address.check}: {counts}: {item.message}"


def markdown(runs: Sequence[Run], verdict: Verdict, pins: Pins) -> str:
    """The part of `docs/conformance.md` that a run writes."""
    suite = ", ".join(f"`{name}` {version}" for packages in pins.values() for name, version in packages.items())
    parts = [
        f"With {suite}:",
        _markdown_table(HEADINGS, rows(runs), "|---|---|" + "---:|" * (len(HEADINGS) - 2)),
        f"Differences that are not expected: {len(verdict.unexpected)}. Expected: {len(verdict.expected)}.",
    ]
    listed = [(item, "–") for item in verdict.unexpected] + list(verdict.expected)
    if listed:
        headings = ("spec version", "scenario", "check", "passed / directly", "message", "expected because", "set-ups")
        parts.append(_markdown_table(headings, _difference_rows(listed), "|---" * len(headings) + "|"))
    return "\n\n".join(parts)


def _difference_rows(listed: Sequence[tuple[Difference, str]]) -> Iterator[tuple[str, ...]]:
    """One row for each difference, with all set-ups that have it."""
    setups: dict[tuple[str, ...], list[str]] = {}
    for item, reason in listed:
        where = item.address
        counts = f"{item.passed} / {item.passed_directly}"
        message = item.message.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
        row = (where.spec_version, where.scenario, where.check, counts, message, reason)
        setups.setdefault(row, []).append(where.setup)
    return ((*row, ", ".join(names)) for row, names in setups.items())


def _markdown_table(headings: Sequence[str], body: Iterator[tuple[str, ...]], rule: str) -> str:
    return "\n".join([f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(row)} |" for row in body)])


def write_between_markers(path: Path, text: str, begin_mark: str = BEGIN, end_mark: str = END) -> None:
    """Replace what stands between the two markers of a Markdown file.

    Raises:
        ValueError: it does not have them, once each and in order.
    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise ValueError(f"{path} does not have {begin_mark} and {end_mark}")
    path.write_text(f"{before}{begin_mark}\n\n{text}\n\n{end_mark}{after}", encoding="utf-8")


def as_json(runs: Sequence[Run], verdict: Verdict, pins: Pins) -> str:
    """Everything, for programs."""
    document = {
        "good": verdict.is_good,
        "versions": pins,
        **asdict(verdict),
        "runs": [{**asdict(run), **asdict(figures([run]))} for run in runs],
    }
    return json.dumps(document, indent=2)
