"""`stop`: the end of a hub."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import WHICH_HUB, Command, action


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("hub", metavar="HUB", nargs="?", help=f"{WHICH_HUB} (default: the only one)")
    parser.add_argument("--all", action="store_true", help="end all hubs of this user")


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.all and options.hub is not None:
        parser.error("either HUB or --all")


COMMAND = Command(
    name="stop",
    summary="End a hub that `attach` has started; its clients start it again with their next request.",
    usage="stop [HUB | --all]",
    examples=("stop", "stop work", "stop mcp.json", "stop --all"),
    add_arguments=_add_arguments,
    check=_check,
    run=action("hubs.stop"),
)
