"""What counts as a difference, and which differences are expected."""

from __future__ import annotations

from conformance.comparison import Address, Run, differences, judge, read_expected
from conformance.setups import SETUPS
from conformance.suite import SPEC_VERSIONS, Check, Status

VERSION = SPEC_VERSIONS[0]


def run(setup: str, *checks: tuple[str, Status], scenario: str = "ping") -> Run:
    results = {scenario: [Check(name, status, f"{name}: {status}") for name, status in checks]} if checks else {}
    return Run(setup, VERSION, results, 1.0)


def worse(here: Run, direct: Run) -> dict[str, str]:
    """The messages of the differences, by check."""
    return {difference.address.check: difference.message for difference in differences(here, direct)}


def test_equal_results_have_no_difference() -> None:
    checks = (("a", Status.SUCCESS), ("b", Status.WARNING), ("c", Status.INFO))
    assert worse(run("http-child", *checks), run("direct", *checks)) == {}


def test_a_check_that_does_not_pass_any_more_differs_whatever_it_has_become() -> None:
    direct = run("direct", ("a", Status.SUCCESS), ("b", Status.SUCCESS), ("c", Status.SUCCESS), ("d", Status.SUCCESS))
    here = run("http-child", ("a", Status.FAILURE), ("b", Status.SKIPPED), ("c", Status.INFO))
    assert worse(here, direct) == {"a": "a: FAILURE", "b": "b: SKIPPED", "c": "c: INFO", "d": "not reached"}


def test_one_of_several_checks_with_the_same_id_is_not_hidden_by_the_others() -> None:
    direct = run("direct", ("a", Status.SUCCESS), ("a", Status.SUCCESS))
    here = run("http-child", ("a", Status.SUCCESS), ("a", Status.FAILURE))
    assert worse(here, direct) == {"a": "a: FAILURE"}


def test_a_failure_of_a_check_that_does_not_occur_directly_differs() -> None:
    here = run("http-child", ("a", Status.SUCCESS), ("setup", Status.FAILURE))
    assert worse(here, run("direct", ("a", Status.SUCCESS))) == {"setup": "setup: FAILURE"}


def test_a_scenario_that_is_missing_differs_in_all_its_checks() -> None:
    direct = run("direct", ("a", Status.SUCCESS), ("b", Status.SUCCESS))
    assert worse(run("http-child", ("z", Status.SUCCESS), scenario="other"), direct) == {
        "a": "not reached",
        "b": "not reached",
    }


def test_what_fails_directly_is_told_too() -> None:
    direct = run("direct", ("a", Status.SUCCESS), ("b", Status.FAILURE))
    verdict = judge([direct], {})
    assert [difference.address.check for difference in verdict.unexpected] == ["b"]
    assert not verdict.is_good


def test_an_expected_difference_is_good_in_its_own_set_up_only() -> None:
    runs = [
        run("direct", ("a", Status.SUCCESS)),
        run("http-child", ("a", Status.FAILURE)),
        run("stdio-child", ("a", Status.FAILURE)),
    ]
    verdict = judge(runs, {Address("stdio-child", VERSION, "ping", "a"): "no way to say it"})
    assert [(item.address.setup, why) for item, why in verdict.expected] == [("stdio-child", "no way to say it")]
    assert [item.address.setup for item in verdict.unexpected] == ["http-child"]


def test_an_expectation_that_is_not_met_any_more_is_stale_if_its_scenario_ran() -> None:
    runs = [run("direct", ("a", Status.SUCCESS)), run("stdio-child", ("a", Status.SUCCESS))]
    met, not_run = (Address("stdio-child", VERSION, scenario, "a") for scenario in ("ping", "caching"))
    verdict = judge(runs, {met: "…", not_run: "…"})
    assert list(verdict.stale) == [met]
    assert not verdict.is_good


def test_every_expected_failure_has_a_place_and_a_reason() -> None:
    for address, reason in read_expected().items():
        assert address.setup in SETUPS
        assert address.spec_version in SPEC_VERSIONS
        assert reason.strip()
