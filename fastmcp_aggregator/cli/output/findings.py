"""What an examination of a config found, in words and as a document."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastmcp_aggregator.doctor.examination import Examination
from fastmcp_aggregator.doctor.findings import Finding
from fastmcp_aggregator.version import VERSION


def described(examination: Examination) -> dict[str, Any]:
    """The document."""
    return {
        "versions": _versions(),
        "programs": [asdict(program) for program in examination.programs],
        "findings": [asdict(finding) for finding in examination.findings],
    }


def told(examination: Examination, source: str) -> Iterator[str]:
    """The words, line by line. `source` is the config file."""
    yield f"Versions: {', '.join(f'{name} {number}' for name, number in _versions().items())}"
    if examination.programs:
        yield "Programs:"
        width = max(len(program.command) for program in examination.programs)
        for program in examination.programs:
            where = "" if program.path == program.command else program.path or "not found"
            yield f"  {program.command:{width}}  {program.version or '':10}  {where}"
    yield ""
    if not examination.findings:
        yield "Nothing to mend was found."
        return
    yield "Findings:"
    for finding in examination.findings:
        yield from _finding(finding, source)


def _finding(finding: Finding, source: str) -> Iterator[str]:
    whose = f"{finding.server}: " if finding.server is not None else ""
    yield f"  {finding.severity:7}  {whose}{finding.message}"
    if finding.path is None:
        return
    where = source if finding.line is None else f"{source}:{finding.line}"
    written = f'"{finding.written}"' if finding.written is not None else finding.path
    yield f"  {'':7}    {where}: {written}" + (f' → "{finding.change}"' if finding.change is not None else "")


def _versions() -> dict[str, str]:
    """Of ourselves and what we stand on."""
    found = {"fastmcp-aggregator": VERSION, "Python": platform.python_version()}
    for package in ("fastmcp", "mcp"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # installed in another way
            continue
    return {**found, "system": sys.platform}
