"""`completion`: a script for the shell, made once from the grammar, so that completing starts no Python."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.options import PROGRAM, SUMMARIES
from fastmcp_aggregator.cli.parser.parser import parsers
from fastmcp_aggregator.cli.terminal.console import put
from fastmcp_aggregator.cli.terminal.exits import FINE

_FILES = {"FILE", "CONFIG"}


def run(options: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    import shtab  # noqa: PLC0415 - nothing else needs it

    script = shtab.complete(_whole_grammar(), shell=options.shell)
    if options.shell == "bash":
        # Without a command the first word is a config: where no command fits, bash is to try files.
        script = script.replace("complete -o bashdefault -F", "complete -o bashdefault -o default -F")
    put(script)
    return FINE


def _whole_grammar() -> argparse.ArgumentParser:
    """All commands in one parser. They are parsed one at a time otherwise, because `serve` needs no name."""
    import shtab  # noqa: PLC0415 - as above

    whole = argparse.ArgumentParser(prog=PROGRAM, description=SUMMARIES["serve"])
    whole.add_argument("--version", action="version", version="")
    commands = whole.add_subparsers()
    for name, parser in parsers().items():
        command = commands.add_parser(
            name, parents=[parser], add_help=False, conflict_handler="resolve", help=SUMMARIES[name]
        )
        for action in command._actions:  # argparse tells them by no other name
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return whole
