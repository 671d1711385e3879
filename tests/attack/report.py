"""The outcome of a run: for the terminal, and as the tables of `docs/security.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from conformance.report import write_between_markers

from attack.table import Attack

BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attack."""

    attack: Attack
    got: str
    is_held: bool


def text(outcomes: Sequence[Outcome]) -> str:
    """How many were held, and which were not."""
    lost = [outcome for outcome in outcomes if not outcome.is_held]
    lines = [f"  {outcome.attack.id}: {outcome.got}" for outcome in lost]
    return "\n".join([f"{len(outcomes) - len(lost)} of {len(outcomes)} attacks were held", *lines])


def tables(outcomes: Sequence[Outcome]) -> str:
    """One table for each module of attacks."""
    held = sum(outcome.is_held for outcome in outcomes)
    return "\n".join([f"{held} of {len(outcomes)} attacks were held.", *_tables(outcomes)])


def _tables(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for heading, rows in groupby(outcomes, key=_heading):
        yield from ("", f"### {heading}", "", "| attack | what it tries | what it got |", "|---|---|---|")
        for outcome in rows:
            about = outcome.attack
            got = outcome.got if outcome.is_held else f"**not held** ({about.holds}): {outcome.got}"
            yield f"| `{about.id}` | {_cell(about.tries)} | {_cell(got)} |"


def markdown(page: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the tables into the page."""
    write_between_markers(page, tables(outcomes), BEGIN, END)


def _heading(outcome: Outcome) -> str:
    return str(sys.modules[outcome.attack.module].HEADING)


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
