"""`hub`: the program that `attach` starts, with a socket and a lock."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_served, require_config


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_served(parser)
    parser.add_argument("--id", required=True, metavar="ID", help="which hub it is")
    parser.add_argument("--hub", metavar="NAME", help="what it is called")


COMMAND = Command(
    name="hub",
    summary="Serve all clients that `attach`; `attach` starts it.",
    usage="hub CONFIG --id ID [options]",
    examples=(),
    add_arguments=_add_arguments,
    check=require_config,
    run=action("hubs.hub"),
    is_internal=True,
)
