"""`restart`: one server of the hubs of this user, or of an instance that serves HTTP, started anew."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import HERE, WHICH_HUB, Command, action, add_api_key


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", metavar="SERVER", help="its key in the config")
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help=f"where an instance serves HTTP (default: your hubs; if none runs, {HERE})",
    )
    parser.add_argument("--hub", metavar="HUB", help=f"in this hub alone: {WHICH_HUB} (default: all that have it)")
    add_api_key(parser)


COMMAND = Command(
    name="restart",
    summary="Restart one server of your hubs, or of a running HTTP instance, for example after a change of its code.",
    usage="restart SERVER [URL] [options]",
    examples=(
        "restart notes",
        "restart notes --hub mcp.json",
        "restart notes https://hub.example.com --api-key-file key",
    ),
    add_arguments=_add_arguments,
    run=action("hubs.restart"),
)
