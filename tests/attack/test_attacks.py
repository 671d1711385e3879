"""A few attacks of each kind, and the table as a whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attack.report import BEGIN, END, Outcome, tables, text
from attack.rooms import ROOMS
from attack.running import SECTIONS, run
from attack.table import TABLE

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
CHOSEN = (
    "identity-none",
    "jwt-none",
    "group-path",
    "group-name",
    "session-sse",
    "held-twice",
    "wire-smuggle",
    "json-odd",
)


@pytest.mark.process
async def test_chosen_attacks_are_held(tmp_path: Path) -> None:
    outcomes = await run(CHOSEN, tmp_path, lambda outcome: None)
    assert len(outcomes) == len(CHOSEN)
    assert all(outcome.is_held for outcome in outcomes), text(outcomes)


def test_the_page_has_every_attack_with_what_it_got() -> None:
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == [
        attack.id for module in SECTIONS for attack in TABLE.values() if attack.module == module.__name__
    ]


def test_every_finding_of_the_review_is_tried() -> None:
    assert {attack.finding for attack in TABLE.values()} >= set(range(1, 32))


def test_every_room_is_used() -> None:
    assert {attack.room for attack in TABLE.values()} == set(ROOMS)


def test_a_table_tells_what_was_not_held() -> None:
    first, second = list(TABLE.values())[:2]
    shown = tables([Outcome(first, "a | b", is_held=True), Outcome(second, "lost", is_held=False)])
    assert shown.startswith("1 of 2 attacks were held.")
    assert "| a \\| b |" in shown
    assert f"| **not held** ({second.holds}): lost |" in shown
