"""Peers that take turns, as in `benchmarks.rounds`; one that fails is left out from then on, with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from benchmarks.peers.bounds import at_most
from benchmarks.rounds import Figures, Subject, ratios, rotated

FAILURES = (OSError, RuntimeError, ValueError, LookupError, TypeError)
"""What a peer's failure may raise here, a step that takes too long among it."""
_LONGEST = 160
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_MESSAGE = re.compile(r'"message": ?"(.+?)["\\]')
_ENDED = re.compile(r"ended with code (-?\d+)")
_RAISED = re.compile(r"[ |+]*[\w.]*(Error|Exception)\b")
_STATUS = re.compile(r"HTTP/1\.1 ([45]\d\d [\w ]+)")


def tried(step: Callable[[], Mapping[str, object]], seconds: float) -> Figures:
    """What a step finds out; or why it failed, as `absent`."""
    try:
        with at_most(seconds):
            return dict(step())
    except FAILURES as error:
        return {"absent": reason(error)}


def reason(error: Exception) -> str:
    """An exception in a line that fits into a table; of an answer that was an error, its message or its status."""
    said = _COLORS.sub("", str(error))
    text = re.sub(r"\s+", " ", said).strip() or type(error).__name__
    if isinstance(error, LookupError):
        text = f"the answer lacks {text}"
    if code := _ENDED.search(text):
        raised = [line.strip(" |+") for line in said.splitlines() if _RAISED.match(line)]
        text = f"it ended with code {code[1]}{': ' if raised else ''}{raised[-1] if raised else ''}"
    elif told := _MESSAGE.search(text):
        text = f"it answers: {told[1]}"
    elif status := _STATUS.search(text):
        text = f"it answers: {status[1]}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def taking_turns(
    subjects: Sequence[Subject], anchor: str, rounds: int, seconds: float, *, warms_up: bool = True
) -> list[Figures]:
    """Visit all in each round, after one that does not count if it warms up; medians, and ratios to the anchor."""
    samples: dict[str, list[Figures]] = {subject.name: [] for subject in subjects}
    failed: dict[str, str] = {}
    for number, subject in rotated(subjects, rounds if warms_up else rounds - 1):
        if subject.name in failed:
            continue
        figures = tried(subject.visit, seconds)
        if "absent" in figures:
            failed[subject.name] = figures["absent"]
        elif number or not warms_up:
            samples[subject.name].append(figures)
    return [line(subject, samples, anchor, failed.get(subject.name)) for subject in subjects]


def line(subject: Subject, samples: Mapping[str, list[Figures]], anchor: str, why: str | None) -> Figures:
    """The figures of one of them."""
    own, about = samples[subject.name], {"name": subject.name, **subject.about}
    if why is not None or not own:
        return {**about, "absent": why or "it was not visited", "against": {}}
    figures = {key: round(median(sample[key] for sample in own), 4) for key in own[0]}
    against = samples.get(anchor, [])
    compared = {anchor: ratios(own, against)} if len(against) == len(own) else {}
    return {**about, **figures, **subject.at_end(), "against": compared}
