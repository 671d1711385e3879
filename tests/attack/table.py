"""The table of attacks: what each tries, what must hold, and the function that tries it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

Room = Literal["team", "open", "small", "machine"]
"""Where an attack takes place; see `rooms.py`."""
Try = Callable[[Any], Awaitable[str]]
"""Tries it in its room. What came of it; AssertionError: it was not held."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One row. `finding` is its number in the review that found it open; 0: it was held, or is new."""

    id: str
    tries: str
    holds: str
    attempt: Try
    room: Room
    finding: int
    module: str


TABLE: dict[str, Attack] = {}


def attack(id_: str, tries: str, holds: str, *, room: Room = "team", finding: int = 0) -> Callable[[Try], Try]:
    """Put a function into the table."""

    def put(attempt: Try) -> Try:
        assert id_ not in TABLE, id_
        module = getattr(attempt, "func", attempt).__module__
        TABLE[id_] = Attack(id_, tries, holds, attempt, room, finding, module)
        return attempt

    return put
