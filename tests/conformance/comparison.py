"""What passes directly and not behind the aggregator, and which of that is expected."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.suite import Check, Results, Status

EXPECTED_FAILURES = Path(__file__).parent / "expected_failures.toml"
BAD = (Status.FAILURE, Status.WARNING)


@dataclass(frozen=True, slots=True)
class Run:
    """The suite in one set-up, for one version of the specification."""

    setup: str
    spec_version: str
    results: Results
    seconds: float


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """One check, wherever in its scenario it occurs, in one run."""

    setup: str
    spec_version: str
    scenario: str
    check: str

    def __str__(self) -> str:
        return f"{self.setup}, {self.spec_version}, {self.scenario}, {self.check}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A check that passed less often than directly, or failed more often."""

    address: Address
    passed: int
    passed_directly: int
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The differences of all runs, sorted by whether `expected_failures.toml` knows them, and why."""

    unexpected: Sequence[Difference]
    expected: Sequence[tuple[Difference, str]]
    stale: Sequence[Address]
    """Expected, but no difference any more."""

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to repair, neither in the code nor in the file."""
        return not self.unexpected and not self.stale


def differences(run: Run, direct: Run) -> Iterator[Difference]:
    """What went worse than directly. For the direct run itself: what did not pass."""
    reference = {} if run is direct else direct.results
    for scenario in dict.fromkeys([*reference, *run.results]):
        there, here = reference.get(scenario, ()), run.results.get(scenario, ())
        for check in dict.fromkeys(item.id for item in (*there, *here)):
            passed, passed_directly = (_count(items, check, Status.SUCCESS) for items in (here, there))
            bad, bad_directly = (_count(items, check, *BAD) for items in (here, there))
            if passed < passed_directly or bad > bad_directly:
                address = Address(run.setup, run.spec_version, scenario, check)
                yield Difference(address, passed, passed_directly, _message(here, check))


def judge(runs: Sequence[Run], expected: dict[Address, str]) -> Verdict:
    """Compare every run with the direct one of its version."""
    direct = {run.spec_version: run for run in runs if run.setup == "direct"}
    found = [difference for run in runs for difference in differences(run, direct[run.spec_version])]
    addresses = {difference.address for difference in found}
    ran = {(run.setup, run.spec_version, scenario) for run in runs for scenario in run.results}
    return Verdict(
        unexpected=[difference for difference in found if difference.address not in expected],
        expected=[(item, expected[item.address]) for item in found if item.address in expected],
        stale=sorted(a for a in expected if a not in addresses and (a.setup, a.spec_version, a.scenario) in ran),
    )


def read_expected(path: Path = EXPECTED_FAILURES) -> dict[Address, str]:
    """The reason for each expected failure."""
    entries = tomllib.loads(path.read_text()).get("expected", [])
    return {
        Address(setup, entry["spec_version"], entry["scenario"], entry["check"]): entry["reason"]
        for entry in entries
        for setup in entry["setups"]
    }


def _count(checks: Iterable[Check], check: str, *statuses: Status) -> int:
    return Counter(item.status in statuses for item in checks if item.id == check)[True]


def _message(checks: Iterable[Check], check: str) -> str:
    messages = dict.fromkeys(c.message for c in checks if c.id == check and c.status is not Status.SUCCESS)
    return "; ".join(messages) or "not reached"
