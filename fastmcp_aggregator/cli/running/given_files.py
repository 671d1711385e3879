"""Files that are given on the command line: texts, and environment variables, `NAME=VALUE` in each line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path

from fastmcp_aggregator.cli.terminal.exits import UsageError
from fastmcp_aggregator.config.documents import MAX_BYTES, PIPE_TIMEOUT
from fastmcp_aggregator.early.reading import read_bytes


def given_text(file: str, shown: str) -> str:
    """The text of a file that is given on the command line, which is called `shown`.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        data = read_bytes(Path(file).expanduser(), MAX_BYTES + 1, timeout=PIPE_TIMEOUT)
        text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{shown} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{shown} cannot be read: it is larger than 10 MiB")
    return text


def add_variables_of(file: str) -> None:
    """Add the file's variables to the environment of this process; those that are set already win.

    A line without a value (`NAME=`) is yet to be filled in, and sets nothing.

    Raises:
        UsageError: it cannot be read.
    """
    for name, value in variables_of(file).items():
        if value:
            os.environ.setdefault(name, value)


class FollowedVariables:
    """The variables of a file in the environment of this process, as the file is now."""

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        """`environ` is what this process was started with, which wins."""
        self._file = file
        self._environ = environ
        self._taken = self._wanted()

    def take(self) -> bool:
        """Read the file again; whether anything is different. Raises UsageError: it cannot be read."""
        wanted = self._wanted()
        gone = self._taken.keys() - wanted.keys()
        is_other = bool(gone) or any(os.environ.get(name) != value for name, value in wanted.items())
        for name in gone:
            os.environ.pop(name, None)
        os.environ.update(wanted)
        self._taken = wanted
        return is_other

    def _wanted(self) -> dict[str, str]:
        return {name: value for name, value in variables_of(self._file).items() if value and name not in self._environ}


def variables_of(file: str) -> dict[str, str]:
    """The variables of the file, with plain values. Raises UsageError: it cannot be read."""
    from dotenv import dotenv_values  # noqa: PLC0415 - only for those who have such a file

    values = dotenv_values(stream=StringIO(given_text(file, f"--env-file {file}")), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}


def env_text(variables: Mapping[str, str], missing: Iterable[str] = ()) -> str:
    """The text of such a file, with a line to be filled in for each variable whose value is missing."""
    lines = [f"{name}={_quoted(value)}" for name, value in variables.items()] + [f"{name}=" for name in missing]
    return "".join(f"{line}\n" for line in lines)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
