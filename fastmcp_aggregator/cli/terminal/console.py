"""The output of a command: messages for people on stderr, results on stdout."""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from fastmcp_aggregator.escaping import json_text, printable

_DIFF_COLOURS = {"+": "\033[32m", "-": "\033[31m", "@": "\033[36m"}
_PIECE = 400
"""POSIX: a pipe that select reports writable takes 4096 bytes (PIPE_BUF) without blocking; a character may need ten."""


def say(text: str) -> None:
    """Write lines to stderr, as far as it takes them: a client that does not read it must not stop the program."""
    for line in text.removesuffix("\n").split("\n"):
        shown = printable(line) + "\n"
        for start in range(0, len(shown), _PIECE):
            _write(shown[start : start + _PIECE])


def put(text: str) -> None:
    """Write a result to stdout, with a newline at its end; what is not printable in its lines is escaped."""
    _put("\n".join(printable(line, keep="\t") for line in text.split("\n")), sys.stdout.encoding)


def put_as_it_is(text: str) -> None:
    """Write a result to stdout as it came, for a program that reads it; a terminal gets it as `put` writes it."""
    if sys.stdout.isatty():
        put(text)
    else:
        _put(text, sys.stdout.encoding)


def put_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout, if there are any."""
    if text := "\n".join(map(printable, lines)):
        put(text)


def put_table(lines: Iterable[str], whole: str) -> None:
    """Write lines to stdout. On a terminal each is cut to its width, and `whole` is said to be where they are whole."""
    shown = [*map(printable, lines)]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        cut = [line if len(line) <= width else f"{line[: width - 1]}…" for line in shown]
        shown = cut if cut == shown else [*cut, f"In full: {whole}"]
    put("\n".join(shown))


def put_diff(lines: Iterable[str]) -> None:
    """Write a unified diff to stdout, with colours on a terminal that wants them."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        put_lines(lines)
        return
    for line in lines:
        colour = _DIFF_COLOURS.get(line[:1], "") if not line.startswith(("---", "+++")) else "\033[1m"
        _put(f"{colour}{printable(line)}\033[0m", sys.stdout.encoding)


def put_json(value: Any, *, indent: int | None = 2) -> None:
    """Write a result to stdout as JSON, which is always UTF-8; what is not printable is escaped."""
    _put(json_text(value, indent), "utf-8")


def show_cursor() -> None:
    """Clear the line of a display that could not be closed, and show the cursor that it had hidden."""
    terminal = sys.__stderr__  # a display that is open has put something in the place of sys.stderr
    if terminal is not None and terminal.isatty():
        terminal.write("\r\033[2K\033[?25h")
        terminal.flush()


def counted(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _put(text: str, encoding: str) -> None:
    data = (text if text.endswith("\n") else text + "\n").encode(encoding, "backslashreplace")
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _write(piece: str) -> None:
    stream = sys.stderr
    try:
        if stream.isatty() or _takes_more(stream):
            stream.write(piece)
            stream.flush()
    except (OSError, ValueError, AttributeError):  # it is closed, or was so from the beginning
        return


def _takes_more(stream: TextIO) -> bool:
    try:
        descriptor = stream.fileno()
    except OSError:  # there is no file behind it
        return True
    # Windows tells it of sockets alone.
    return sys.platform == "win32" or bool(select.select([], [descriptor], [], 0)[1])
