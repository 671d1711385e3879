"""A command: its help, its arguments, and what it does. A command's file is imported for `--help`, so it is light."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from fastmcp_aggregator.cli.terminal.exits import EXPLAINED
from fastmcp_aggregator.version import VERSION

PROGRAM = "fastmcp-aggregator"


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the program.

    `usage` and each of `examples` is what follows the program's name. `run` returns the exit code. `check` calls
    `parser.error` for arguments that do not go together.
    """

    name: str
    summary: str
    usage: str
    examples: tuple[str, ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.ArgumentParser, argparse.Namespace], None] | None = None

    def parser(self, usage: str | None = None, epilog: str = EXPLAINED) -> argparse.ArgumentParser:
        """The parser of its arguments, with the options that every command has."""
        examples = "\n".join(f"  {PROGRAM} {example}" for example in self.examples)
        parser = argparse.ArgumentParser(
            prog=PROGRAM if self.name == "serve" else f"{PROGRAM} {self.name}",
            usage=usage,
            description=self.summary,
            epilog=f"examples:\n{examples}\n\n{epilog}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
        self.add_arguments(parser)
        parser.add_argument("--debug", action="store_true", help="log more, and show tracebacks")
        return parser


def action(module: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    """A function of a module of `cli.actions`, which is imported when it is called."""

    def run(options: argparse.Namespace) -> int:
        code: int = getattr(import_module(f"fastmcp_aggregator.cli.actions.{module}"), function)(options)
        return code

    return run
