"""Questions to a person, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.cli.terminal.exits import UsageError
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.escaping import printable

NOTHING_WRITTEN = "Nothing is written."
"""Every question comes before the first write."""


def may_ask() -> bool:
    """True if somebody is there to answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def agrees(question: str) -> bool:
    """True if the answer is yes; no answer is no."""
    return _answer(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def answered(question: str) -> str:
    """The line that somebody writes; empty: nothing."""
    return _answer(question).strip()


def chosen(question: str, choices: Sequence[str]) -> int:
    """The chosen one, by index; asks until it is one of these. Raises UsageError: the terminal has ended."""
    listed = "\n".join(f"  {number}  {printable(choice)}" for number, choice in enumerate(choices, 1))
    prompt = f"{question}\n{listed}\nWhich one? [1-{len(choices)}] "
    while line := _answer(prompt):
        answer = line.strip()
        if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(choices):
            return int(answer) - 1
        prompt = f"Give a number from 1 to {len(choices)}: "
    raise UsageError(f"no answer. {NOTHING_WRITTEN}")


def _answer(prompt: str) -> str:
    """The line, with its end; empty at the end of the input."""
    end_on_signals(None, lambda: say(f"\n{NOTHING_WRITTEN}"))
    try:
        sys.stderr.write(printable(prompt, keep="\n"))
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line.endswith("\n"):  # the end of the input has left the cursor behind the question
            sys.stderr.write("\n")
        return line
    finally:
        end_on_signals(None)
