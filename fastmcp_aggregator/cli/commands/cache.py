"""`cache`: what servers offered last, as it is kept on disk."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_json


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="list|clear", choices=["list", "clear"], help="what to do")
    parser.add_argument(
        "servers", metavar="SERVER", nargs="*", default=[], help="clear: only the catalogues of these (default all)"
    )
    add_json(parser)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.action == "list" and options.servers:
        parser.error("`list` takes no SERVER")


COMMAND = Command(
    name="cache",
    summary="List or clear the catalogues of servers that are kept on disk.",
    usage="cache list|clear [SERVER …] [options]",
    examples=("cache list", "cache clear git"),
    add_arguments=_add_arguments,
    check=_check,
    run=action("cache"),
)
