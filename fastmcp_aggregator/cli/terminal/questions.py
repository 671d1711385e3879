"""Questions to a person, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import FAILED
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.escaping import printable

NOTHING_WRITTEN = "Nothing is written."
"""Every question comes before the first write."""


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
    end_on_signals(FAILED, lambda: say(f"\n{NOTHING_WRITTEN}"))
    try:
        sys.stderr.write(printable(prompt, keep="\n"))
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line.endswith("\n"):  # the end of the input has left the cursor behind the question
            sys.stderr.write("\n")
        return line.strip()
    finally:
        end_on_signals(FAILED)
