"""The entry point: parse, run the command, turn its errors into words and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Sequence

from fastmcp_aggregator.cli.commands import all_commands, known_commands
from fastmcp_aggregator.cli.parser.command import Command
from fastmcp_aggregator.cli.terminal import exits
from fastmcp_aggregator.cli.terminal.logs import set_up_logging, tell
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.errors import AggregatorError, StartupError
from fastmcp_aggregator.libraries import usable_libraries
from fastmcp_aggregator.version import PROGRAM

_COMMANDS_OF_OTHERS = {
    "add": "import",
    "create": "new",
    "doctor": "check",
    "help": "--help",
    "init": "new",
    "inspect": "list",
    "ls": "list",
    "ps": "status",
    "reload": "restart",
    "remove": "uninstall",
    "run": "serve",
    "start": "serve",
    "tools": "list",
    "validate": "check",
    "version": "--version",
}
"""The names that other programs have for our commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default that of this process; the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    end_on_signals(exits.FINE if options.command == "serve" else None)
    set_up_logging(debug=options.debug)
    # FastMCP reads the `.env` of the working directory, which may have come with somebody's repository.
    os.environ.setdefault("FASTMCP_ENV_FILE", os.devnull)
    try:
        with usable_libraries():
            return known_commands()[options.command].run(options)
    except BrokenPipeError:
        # The reader of our stdout has left. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED
    except Exception as error:
        tell(_words_for(error, debug=options.debug), logging.ERROR)
        return exits.exit_code_of(error)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with the name of the command in `command`.

    Raises:
        SystemExit: they cannot be understood, or ask for help or the version; what there is to say has been said.
    """
    commands = known_commands()
    first = arguments[0] if arguments else ""
    command, rest = (commands[first], arguments[1:]) if first in commands else (commands["serve"], arguments)
    parser = _program_parser(commands["serve"]) if command.name == "serve" else command.parser()
    if first not in commands:
        _refuse_misspelled_command(parser, first)
    options = command.parsed(rest, parser)
    options.command = command.name
    return options


def _program_parser(serve: Command) -> argparse.ArgumentParser:
    """The parser without a command, with the help that tells of all commands."""
    commands = all_commands().values()
    usage = "\n       ".join(f"{PROGRAM} {command.usage}" for command in commands)
    summaries = "\n".join(f"  {command.name:10} {command.summary}" for command in commands)
    about = f"commands (`{PROGRAM} COMMAND --help` tells more; without a command, it serves):\n{summaries}"
    return serve.parser(usage, f"{about}\n\n{exits.EXPLAINED}")


def _refuse_misspelled_command(parser: argparse.ArgumentParser, word: str) -> None:
    """Refuse a first word that is no config, and nearly a command."""
    if not word.isalpha() or os.path.exists(word):
        return
    from fastmcp_aggregator.naming.suggestions import closest  # noqa: PLC0415 - only for those who have mistyped

    meant = _COMMANDS_OF_OTHERS.get(word)
    if similar := [meant] if meant else closest(word, all_commands(), 1):
        parser.error(f"{word!r} is neither a command nor a config file; did you mean `{similar[0]}`?")


def _words_for(error: Exception, *, debug: bool) -> str:
    if debug:
        return "".join(traceback.format_exception(error))
    if isinstance(error, StartupError):  # of a command that is no server
        return error.summary
    if isinstance(error, AggregatorError):
        return str(error)
    return f"unexpected {error.__class__.__name__}: {error}\nRun it with --debug to see where."
