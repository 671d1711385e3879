"""The tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.comparison import Run, judge
from conformance.installation import NODE_PINS, SUITE
from conformance.report import BEGIN, END, as_json, markdown, rows, text_verdict, write_between_markers
from conformance.suite import Check, Status

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
PINS = {"node": {"suite": "1"}}
RUNS = [
    Run("direct", "2025-11-25", {"ping": [Check("a", Status.SUCCESS, "")], "x": [Check("b", Status.SUCCESS, "")]}, 1.0),
    Run("direct", "2026-07-28", {"ping": [Check("a", Status.SUCCESS, ""), Check("c", Status.INFO, "")]}, 2.0),
    Run("one", "2025-11-25", {"ping": [Check("a", Status.WARNING, "a|b")], "x": [Check("b", Status.FAILURE, "no")]}, 1),
]


def test_each_run_has_a_row_and_each_set_up_with_two_has_their_sum() -> None:
    assert list(rows(RUNS)) == [
        ("direct", "2025-11-25", "2 of 2", "2", "0", "0", "0", "1.0"),
        ("direct", "2026-07-28", "1 of 1", "1", "0", "0", "0", "2.0"),
        ("direct", "all", "3 of 3", "3", "0", "0", "0", "3.0"),
        ("one", "2025-11-25", "1 of 2", "0", "1", "1", "0", "1.0"),
    ]


def test_the_verdict_tells_each_difference_with_its_message() -> None:
    assert text_verdict(judge(RUNS, {})).splitlines() == [
        "DIFFERENT: one, 2025-11-25",
        "  ping, a: passed 0, directly 1: a|b",
        "  x, b: passed 0, directly 1: no",
        "2 different, 0 stale.",
    ]


def test_markdown_has_the_rows_and_the_differences() -> None:
    lines = markdown(RUNS, judge(RUNS, {}), PINS).splitlines()
    assert "| one | 2025-11-25 | 1 of 2 | 0 | 1 | 1 | 0 | 1.0 |" in lines
    assert "| 2025-11-25 | ping | a | 0 / 1 | a\\|b | – | one |" in lines


def test_markdown_has_a_difference_of_several_set_ups_once() -> None:
    runs = [*RUNS, replace(RUNS[2], setup="other")]
    assert "| 2025-11-25 | x | b | 0 / 1 | no | – | one, other |" in markdown(runs, judge(runs, {}), PINS)


def test_json_has_the_counts_and_every_check() -> None:
    document = json.loads(as_json(RUNS, judge(RUNS, {}), PINS))
    assert document["good"] is False
    assert document["runs"][1]["checks"] == {"SUCCESS": 1, "INFO": 1}
    assert document["runs"][2]["results"]["x"] == [{"id": "b", "status": "FAILURE", "message": "no"}]
    assert document["unexpected"][0]["address"]["check"] == "a"


def test_only_what_stands_between_the_markers_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n\nThe end.\n")
    write_between_markers(page, "new")
    assert page.read_text() == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nThe end.\n"


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n")
    with pytest.raises(ValueError, match="does not have"):
        write_between_markers(page, "new")


def test_the_documentation_is_of_the_suite_that_is_installed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert END in page
    assert f"`{SUITE}` {NODE_PINS[SUITE]}" in page
