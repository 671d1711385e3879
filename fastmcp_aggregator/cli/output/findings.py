"""Findings in words: in brief, what several servers have in common said once; or each with location and change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fastmcp_aggregator.doctor.findings import Finding

_HEADINGS = {"error": "Errors:", "warning": "To decide:", "note": "Notes:"}
_BRIEF = 10
_MOST_NAMED = 8


def findings_in_brief(findings: Iterable[Finding], source: str) -> Iterator[str]:
    """The findings by how grave they are, a line for all that say the same. `source` is the config file."""
    by_severity: dict[str, dict[str, list[Finding]]] = {}
    for finding in findings:
        alike = by_severity.setdefault(finding.severity, {})
        alike.setdefault(finding.common or finding.message, []).append(finding)
    for severity, heading in _HEADINGS.items():
        if severity in by_severity:
            yield heading
            yield from at_most([_line(same, source) for same in by_severity[severity].values()])


def findings_in_full(findings: Sequence[Finding], source: str) -> Iterator[str]:
    """Each finding, with the line of the config that it is about, and what to write there."""
    if findings:
        yield "Findings:"
    for finding in findings:
        whose = f"{finding.server}: " if finding.server is not None else ""
        yield f"  {finding.severity:7}  {whose}{finding.message}"
        if finding.path is not None:
            written = f'"{finding.written}"' if finding.written is not None else finding.path
            change = f' → "{finding.change}"' if finding.change is not None else ""
            yield f"  {'':7}    {_location(finding, source)}: {written}{change}"


def at_most(lines: Sequence[str]) -> list[str]:
    """The first lines, and how many more there are."""
    return [*lines] if len(lines) <= _BRIEF else [*lines[: _BRIEF - 1], f"  … and {len(lines) - _BRIEF + 1} more"]


def named(keys: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(keys) - _MOST_NAMED + 1} more"
    return ", ".join(keys) if len(keys) <= _MOST_NAMED else f"{', '.join(keys[: _MOST_NAMED - 1])}{more}"


def _line(same: Sequence[Finding], source: str) -> str:
    first, servers = same[0], list(dict.fromkeys(each.server for each in same if each.server is not None))
    if len(same) > 1:
        told = named(servers) if first.severity != "error" else ", ".join(map(_in_line, same))
        return f"  {first.common or first.message}: {told}"
    location = f" ({_location(first, source)})" if first.path is not None else ""
    return f"  {f'{servers[0]}: ' if servers else ''}{first.message}{location}"


def _in_line(finding: Finding) -> str:
    return f"{finding.server} (line {finding.line})" if finding.line is not None else f"{finding.server}"


def _location(finding: Finding, source: str) -> str:
    return source if finding.line is None else f"{source}:{finding.line}"
