"""Runs the official conformance suite against its fixture, directly and through the aggregator, and compares.

Exits with 1 if a check passes directly and not behind the aggregator, unless `expected_failures.toml` says why.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from conformance import setups
from conformance.comparison import Run, judge, read_expected
from conformance.installation import Installation, default_folder, install, pins
from conformance.report import as_json, markdown, text_table, text_verdict, write_between_markers
from conformance.setups import SETUPS
from conformance.suite import EXTENSIONS, SPEC_VERSIONS, run_suite


def main() -> int:
    """Run, print the table and the differences, write the files; the exit code."""
    options = _options()
    installation = install(default_folder())
    try:
        with tempfile.TemporaryDirectory() as scratch:
            runs = list(_runs(installation, options, options.output or Path(scratch)))
    except RuntimeError as error:
        sys.exit(str(error))
    if not runs:
        sys.exit(f"no scenario {options.scenario} for {', '.join(options.spec_versions)}")
    verdict = judge(runs, read_expected())
    print(f"{text_table(runs)}\n\n{text_verdict(verdict)}")
    if options.json:
        options.json.write_text(as_json(runs, verdict, pins()) + "\n")
    if options.markdown:
        write_between_markers(options.markdown, markdown(runs, verdict, pins()))
    return 0 if verdict.is_good else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--only", metavar="SETUP", choices=SETUPS, help=f"beside direct: {', '.join(SETUPS)}")
    versions = (*SPEC_VERSIONS, EXTENSIONS)
    parser.add_argument("--spec-version", metavar="V", choices=versions, help=" or ".join(versions))
    parser.add_argument("--scenario", metavar="NAME", help="one scenario of the suite")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all results here")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables here, between the markers")
    parser.add_argument("--output", metavar="DIR", type=Path, help="keep the suite's files and the servers' logs here")
    options = parser.parse_args()
    if options.markdown and (options.only or options.spec_version or options.scenario):
        parser.error("--markdown is for a whole run")
    if options.output and options.output.exists():
        parser.error(f"{options.output} exists")
    options.setups = dict.fromkeys(["direct", options.only]) if options.only else SETUPS
    options.spec_versions = [options.spec_version] if options.spec_version else versions
    return options


def _runs(installation: Installation, options: argparse.Namespace, output: Path) -> Iterator[Run]:
    """Set-up by set-up, each with its own servers; without those in which the scenario does not occur."""
    for setup in options.setups:
        for fixture in (setups.CORE, setups.EXTENSIONS):
            versions = [
                each for each in options.spec_versions if (each == EXTENSIONS) is (fixture is setups.EXTENSIONS)
            ]
            if versions:
                yield from _runs_with(installation, setup, fixture, versions, options.scenario, output)


def _runs_with(
    installation: Installation,
    setup: str,
    fixture: setups.Fixture,
    spec_versions: list[str],
    scenario: str | None,
    output: Path,
) -> Iterator[Run]:
    folder = output / setup / ("extensions" if fixture is setups.EXTENSIONS else "core")
    folder.mkdir(parents=True)
    with SETUPS[setup](installation, folder, fixture) as url:
        for spec_version in spec_versions:
            print(f"{setup}, {spec_version}", file=sys.stderr, flush=True)
            results_folder = folder / spec_version
            results_folder.mkdir(exist_ok=True)
            start = time.monotonic()
            results = run_suite(installation, url, spec_version, results_folder, scenario)
            if results:
                yield Run(setup, spec_version, results, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
