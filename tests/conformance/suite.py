"""Runs the suite against a URL, and reads what it has found."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from conformance.installation import Installation

SPEC_VERSIONS = ("2025-11-25", "2026-07-28")
EXTENSIONS = "extensions"
"""In place of a version: the scenarios for extensions, which are of none."""
EXTENSION_SCENARIOS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
    "sep-2640-skills-enumeration",
    "sep-2640-skills-manifest",
    "sep-2640-skills-directory",
)
TIMEOUT = 300.0
"""Seconds for the suite as a whole; a single scenario has 30, by the suite's own limit."""


class Status(StrEnum):
    """How a check can end. The suite counts SUCCESS as passed and FAILURE as failed; INFO is no verdict."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    WARNING = "WARNING"
    SKIPPED = "SKIPPED"
    INFO = "INFO"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one scenario. An id may occur several times."""

    id: str
    status: Status
    message: str


Results = Mapping[str, Sequence[Check]]
"""The checks by scenario."""


def run_suite(
    installation: Installation, url: str, spec_version: str, folder: Path, scenario: str | None = None
) -> Results:
    """Run all scenarios of a version of the specification, or one; `folder`, an empty one, gets the suite's own files.

    A scenario that is not of this version is left out.

    Raises:
        RuntimeError: the suite did not run.
    """
    if spec_version == EXTENSIONS:
        names = [name for name in EXTENSION_SCENARIOS if scenario in (None, name)]
        return {name: found for each in names for name, found in _run_one(installation, url, folder, each).items()}
    what = ["--scenario", scenario] if scenario else ["--suite", "all"]
    return _run(installation, url, [*what, "--spec-version", spec_version], folder)


def _run_one(installation: Installation, url: str, folder: Path, scenario: str) -> Results:
    """One scenario, in a folder of its own."""
    own = folder / scenario
    own.mkdir()
    return _run(installation, url, ["--scenario", scenario], own)


def _run(installation: Installation, url: str, what: Sequence[str], folder: Path) -> Results:
    done = subprocess.run(
        [*installation.suite, "server", *what, "--url", url, "--output-dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    (folder / "output.txt").write_text(done.stdout)
    results = dict(read_results(folder, done.stdout))
    if not results and "SKIPPED" not in done.stdout:
        raise RuntimeError(f"the suite did not run:\n{done.stdout[-2000:]}")
    return results


def read_results(folder: Path, output: str) -> Iterator[tuple[str, list[Check]]]:
    """The results that the suite has saved, by its own order; one that it has not saved has failed as a whole."""
    for name in re.findall(r"^Running client scenario '([^']+)'", output, re.MULTILINE):
        saved = next(folder.glob(f"server-{name}-[0-9][0-9][0-9][0-9]-*/checks.json"), None)
        if saved is not None:
            yield name, [_check(item) for item in json.loads(saved.read_text())]
        else:
            yield name, [Check(name, Status.FAILURE, _why_it_failed(name, output))]


def _check(item: dict[str, Any]) -> Check:
    details = item.get("details") or {}
    message = item.get("errorMessage") or details.get("message") or item.get("description") or ""
    return Check(item["id"], Status(item["status"]), str(message))


def _why_it_failed(scenario: str, output: str) -> str:
    found = re.search(
        rf"^(?:Failed to run scenario {re.escape(scenario)}|Server test error): *(.*)", output, re.MULTILINE
    )
    return found[1] if found else "the scenario was not finished"
