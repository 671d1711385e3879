"""The run of the table: room by room, each attack for itself, and what must hold after each."""

from __future__ import annotations

import asyncio
import hashlib
import json
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx2

import fastmcp_aggregator
from attack import files, held, identity, operators, requests, rights, servers, sessions, shares, vast
from attack.report import Outcome
from attack.rooms import ROOMS, hubs_of
from attack.table import TABLE, Attack

SECTIONS = (identity, rights, operators, sessions, requests, servers, vast, held, shares, files)
"""The modules that fill the table, in the order of the page."""
_BOUND = 180.0
"""Seconds that an attack may take."""


async def run(only: tuple[str, ...], folder: Path, tell: Callable[[Outcome], None]) -> list[Outcome]:
    """The outcomes of the attacks whose ids begin so, in the order of the table."""
    chosen = _in_order(attack for attack in TABLE.values() if attack.id.startswith(only))
    outcomes: dict[str, Outcome] = {}
    for name, opened in ROOMS.items():
        here = [attack for attack in chosen if attack.room == name]
        if not here:
            continue
        async with opened(folder / name) as room:
            for attack in here:
                outcomes[attack.id] = await _outcome(attack, room)
                tell(outcomes[attack.id])
    return [outcomes[attack.id] for attack in chosen]


def _in_order(attacks: Iterable[Attack]) -> list[Attack]:
    order = [module.__name__ for module in SECTIONS]
    return sorted(attacks, key=lambda attack: order.index(attack.module))


def with_kept(file: Path, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """These outcomes, and those of other parts that the file has of the same program, in order; all are kept in it."""
    program = _digest_of_program()
    kept = json.loads(file.read_text()) if file.exists() else {}
    if kept.get("program") != program:
        kept = {"program": program, "outcomes": {}}
    kept["outcomes"].update({each.attack.id: (each.got, each.is_held) for each in outcomes})
    file.write_text(json.dumps(kept, indent=1))
    found = kept["outcomes"]
    attacks = _in_order(attack for attack in TABLE.values() if attack.id in found)
    return [Outcome(attack, found[attack.id][0], is_held=found[attack.id][1]) for attack in attacks]


def _digest_of_program() -> str:
    root = Path(fastmcp_aggregator.__file__).parent
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(root.rglob("*.py")))).hexdigest()


async def _outcome(attack: Attack, room: Any) -> Outcome:
    try:
        async with asyncio.timeout(_BOUND) as bound:
            try:
                got = await attack.attempt(room)
            finally:
                for hub in hubs_of(room):
                    await hub.stack.aclose()
            for hub in hubs_of(room):
                await hub.check()
    except AssertionError as error:
        return Outcome(attack, str(error).partition("\n")[0] or _line_of(error), is_held=False)
    except TimeoutError:
        traceback.print_exc()
        waited = f"no end within {_BOUND:g} s" if bound.expired() else "no answer"
        return Outcome(attack, waited, is_held=False)
    except httpx2.TransportError:
        return Outcome(attack, "no answer", is_held=False)
    except Exception as error:
        traceback.print_exc()
        return Outcome(attack, f"broke: {type(error).__name__}", is_held=False)
    return Outcome(attack, got, is_held=True)


def _line_of(error: BaseException) -> str:
    return str(traceback.extract_tb(error.__traceback__)[-1].line)
