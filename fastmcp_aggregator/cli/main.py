"""The entry point: parse, run the command, turn its errors into words and an exit code."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from fastmcp_aggregator.cli.parser.parser import MODULES, parse
from fastmcp_aggregator.cli.terminal import exits
from fastmcp_aggregator.cli.terminal.logs import set_up_logging, tell
from fastmcp_aggregator.cli.terminal.signals import end_on_signals
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.libraries import usable_libraries


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default that of this process; the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    end_on_signals(exits.FINE if options.command == "serve" else exits.FAILED)
    set_up_logging(debug=options.debug)
    try:
        with usable_libraries():
            code: int = import_module(f"fastmcp_aggregator.cli.{MODULES[options.command]}").run(options)
    except BrokenPipeError:
        # Whoever read our stdout has left. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.FAILED
    except Exception as error:
        tell(_words_for(error, debug=options.debug), logging.ERROR)
        return exits.exit_code_of(error)
    return code


def _words_for(error: Exception, *, debug: bool) -> str:
    if debug:
        return "".join(traceback.format_exception(error))
    if isinstance(error, AggregatorError):
        return str(error)
    return f"unexpected {error.__class__.__name__}: {error}\nRun it with --debug to see where."
