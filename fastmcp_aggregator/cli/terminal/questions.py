"""Questions to a person, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fastmcp_aggregator.cli.terminal.console import printable


def may_ask() -> bool:
    """Whether somebody is there to answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def agrees(question: str) -> bool:
    """Whether the answer is yes; no answer is no."""
    return _answer(f"{question} [y/N] ").lower() in ("y", "yes")


def chosen(question: str, choices: Sequence[str]) -> int | None:
    """Which of these is chosen, by index; None if the answer is none of them."""
    listed = "\n".join(f"  {number}  {printable(choice)}" for number, choice in enumerate(choices, 1))
    answer = _answer(f"{question}\n{listed}\nWhich one? [1-{len(choices)}] ")
    return int(answer) - 1 if answer.isdecimal() and 1 <= int(answer) <= len(choices) else None


def _answer(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().strip()
