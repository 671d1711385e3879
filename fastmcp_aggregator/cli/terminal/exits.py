"""The exit codes: what each means, and which error ends the program with which."""

from __future__ import annotations

from fastmcp_aggregator.errors import (
    AggregatorError,
    ChildServerError,
    ConfigError,
    DependencyError,
    SharedStateError,
    StartupError,
)

FINE = 0
FAILED = 1
CONFIGURATION = 2
SERVER_FAILED = 3

EXPLAINED = """\
exit codes:
  0  fine; also when serving was ended by the client, by Ctrl-C or by SIGTERM
  1  anything else: a call failed, a tool reported an error, a question was not answered with yes
  2  the command line, the config or the settings are wrong, or `check` has found errors
  3  a server failed to start, two servers offer the same name, Redis cannot be reached, or FastMCP cannot be used
  130  a command was interrupted by Ctrl-C (143: by SIGTERM)"""


class UsageError(AggregatorError):
    """The command line cannot be used; the message says what to write instead."""


def exit_code_of(error: Exception) -> int:
    """The exit code of a program that this error ends."""
    match error:
        case UsageError() | ConfigError():
            return CONFIGURATION
        case StartupError() | ChildServerError() | SharedStateError() | DependencyError():
            return SERVER_FAILED
        case _:
            return FAILED
