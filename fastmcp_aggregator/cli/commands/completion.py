"""`completion`: a script for the shell, made once from the grammar, so that completing starts no Python."""

from __future__ import annotations

import argparse
import re

from fastmcp_aggregator.cli.commands import all_commands
from fastmcp_aggregator.cli.parser.command import Command
from fastmcp_aggregator.cli.terminal.console import put
from fastmcp_aggregator.cli.terminal.exits import FINE
from fastmcp_aggregator.version import PROGRAM

_FILES = {"FILE", "CONFIG"}
_VALUES = re.compile(r"(?<=:\()[^()]+(?=\)\"$)", re.MULTILINE)
"""The values of an option, in zsh's script."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="bash|zsh|fish", choices=["bash", "zsh", "fish"], help="the shell")


def _run(options: argparse.Namespace) -> int:
    import shtab  # noqa: PLC0415 - nothing else needs it

    script = shtab.complete(_whole_grammar(), shell=options.shell)
    if options.shell == "bash":
        # Without a command the first word is a config: where no command fits, bash is to try files.
        script = script.replace("complete -o bashdefault -F", "complete -o bashdefault -o default -F")
    if options.shell == "zsh":
        # A colon separates the parts of what zsh is told of an option, also among its values.
        script = _VALUES.sub(lambda values: values[0].replace(":", r"\:"), script)
    put(script)
    return FINE


def _whole_grammar() -> argparse.ArgumentParser:
    """All commands in one parser. They are parsed one at a time otherwise, because `serve` needs no name."""
    import shtab  # noqa: PLC0415 - as above

    commands = all_commands()
    whole = argparse.ArgumentParser(prog=PROGRAM, description=commands["serve"].summary)
    whole.add_argument("--version", action="version", version="")
    parsers = whole.add_subparsers()
    for command in commands.values():
        parser = parsers.add_parser(
            command.name, parents=[command.parser()], add_help=False, conflict_handler="resolve", help=command.summary
        )
        for argument in parser._actions:  # argparse tells them by no other name
            if argument.metavar in _FILES:
                argument.complete = shtab.FILE  # type: ignore[attr-defined]
            if argument.choices and argument.help and not argument.option_strings:  # fish shows it beside each
                argument.help = argument.help.partition(":")[0]
    return whole


COMMAND = Command(
    name="completion",
    summary="Print a script that completes command lines in your shell.",
    usage="completion bash|zsh|fish",
    examples=("completion bash > ~/.local/share/bash-completion/completions/fastmcp-aggregator",),
    add_arguments=_add_arguments,
    run=_run,
)
