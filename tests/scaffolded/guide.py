"""The guide as a script: its commands in their order, and what it says that they print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "writing-a-server.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "=== step"


@dataclass(frozen=True, slots=True)
class Step:
    """Commands, and lines that are parts of what they print, in this order."""

    commands: str
    printed: tuple[str, ...]


def steps() -> list[Step]:
    """The blocks of commands, each with the block of text that follows it."""
    blocks = _BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    followers = [*blocks[1:], ("", "")]
    return [
        Step(commands, tuple(printed.splitlines()) if kind == "text" else ())
        for (language, commands), (kind, printed) in zip(blocks, followers, strict=True)
        if language == "bash"
    ]


def script() -> str:
    """All commands, which end with the first that fails."""
    marked = [f"echo '{_MARK} {number}'\n{step.commands}" for number, step in enumerate(steps())]
    return "\n".join(["set -euo pipefail", *marked])


def outputs(printed: str) -> list[str]:
    """What each step has printed."""
    return re.split(rf"^{_MARK} \d+\n", printed, flags=re.MULTILINE)[1:]


def is_in_order(lines: tuple[str, ...], text: str) -> bool:
    """Whether the lines are parts of the text, one after the other."""
    position = 0
    for line in lines:
        found = text.find(line, position)
        if found < 0:
            return False
        position = found + len(line)
    return True
