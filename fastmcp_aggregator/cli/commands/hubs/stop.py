"""`stop`: the end of a hub."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "hub", metavar="HUB", nargs="?", help="its name, or the beginning of its id (default: the only one)"
    )


COMMAND = Command(
    name="stop",
    summary="End a hub that `attach` has started; its clients start it again with their next request.",
    usage="stop [HUB]",
    examples=("stop", "stop work"),
    add_arguments=_add_arguments,
    run=action("hubs.stop"),
)
