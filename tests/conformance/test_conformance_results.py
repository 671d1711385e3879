"""What is read from the files and the output of the suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conformance.suite import Check, Status, read_results


def save(folder: Path, scenario: str, *checks: dict[str, Any]) -> None:
    """What the suite writes for a scenario."""
    results = folder / f"server-{scenario}-2026-01-02T03-04-05-006Z"
    results.mkdir()
    (results / "checks.json").write_text(json.dumps(checks))


def ran(*scenarios: str) -> str:
    """What the suite prints while it runs these."""
    return "\n".join(f"Running client scenario '{name}' against server: http://127.0.0.1:1/mcp" for name in scenarios)


def test_checks_are_read_in_the_order_in_which_the_scenarios_ran(tmp_path: Path) -> None:
    save(tmp_path, "caching", {"id": "hints", "status": "SUCCESS", "description": "Has hints"})
    save(tmp_path, "ping", {"id": "pong", "status": "SUCCESS", "description": "Answers"})
    results = dict(read_results(tmp_path, ran("ping", "caching")))
    assert list(results) == ["ping", "caching"]
    assert results["ping"] == [Check("pong", Status.SUCCESS, "Answers")]


def test_a_scenario_is_not_mistaken_for_one_whose_name_begins_alike(tmp_path: Path) -> None:
    save(tmp_path, "json-schema-2020-12", {"id": "short", "status": "SUCCESS"})
    save(tmp_path, "json-schema-2020-12-preservation", {"id": "long", "status": "SUCCESS"})
    results = dict(read_results(tmp_path, ran("json-schema-2020-12-preservation", "json-schema-2020-12")))
    assert [checks[0].id for checks in results.values()] == ["long", "short"]


def test_the_message_is_the_error_or_what_is_in_the_details(tmp_path: Path) -> None:
    failed = {"id": "a", "status": "FAILURE", "errorMessage": "wrong", "details": {"message": "because"}}
    told = {"id": "b", "status": "INFO", "details": {"message": "not applicable"}, "description": "Does it"}
    save(tmp_path, "ping", failed, told)
    results = dict(read_results(tmp_path, ran("ping")))
    assert [check.message for check in results["ping"]] == ["wrong", "not applicable"]


def test_a_scenario_that_was_broken_off_has_failed_with_the_reason_that_was_printed(tmp_path: Path) -> None:
    save(tmp_path, "ping", {"id": "pong", "status": "SUCCESS"})
    output = f"{ran('ping', 'caching')}\nFailed to run scenario caching: Error: timed out after 30000ms\n    at …"
    results = dict(read_results(tmp_path, output))
    assert results["caching"] == [Check("caching", Status.FAILURE, "Error: timed out after 30000ms")]
