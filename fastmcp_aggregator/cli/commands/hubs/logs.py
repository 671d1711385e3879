"""`logs`: what a hub has logged."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import WHICH_HUB, Command, action


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hub", metavar="HUB", nargs="?", help=f"{WHICH_HUB} (default: the only one)")
    parser.add_argument("--follow", action="store_true", help="go on, and show what is added")


COMMAND = Command(
    name="logs",
    summary="Show the log of a hub that `attach` has started.",
    usage="logs [HUB] [--follow]",
    examples=("logs", "logs work --follow", "logs mcp.json"),
    add_arguments=_add_arguments,
    run=action("hubs.logs"),
)
