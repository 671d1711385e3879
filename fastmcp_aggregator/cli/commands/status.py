"""`status`: how the hubs of this user are, or the servers of an instance that serves HTTP."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import HERE, WHICH_HUB, Command, action, add_api_key, add_json


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help=f"where an instance serves HTTP (default: your hubs; if none runs, {HERE})",
    )
    add_api_key(parser)
    parser.add_argument(
        "--open",
        metavar="HUB",
        nargs="?",
        const="",
        help="show the dashboard of a hub in the browser (default: the only one)",
    )
    parser.add_argument("--hub", metavar="HUB", help=f"this hub alone: {WHICH_HUB}")
    parser.add_argument("--wake", metavar="SERVER", help="start this server first, if it sleeps")
    parser.add_argument("--watch", action="store_true", help="go on, and show what changes")
    parser.add_argument(
        "--every", metavar="SECONDS", type=float, default=2.0, help="--watch: how often to look (default 2)"
    )
    add_json(parser, "as JSON; with --watch, one object in each line")


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not 0.1 <= options.every <= 3600:
        parser.error("--every must be a number of seconds from 0.1 to 3600")


COMMAND = Command(
    name="status",
    summary="Show how your hubs are, or the servers of a running HTTP instance.",
    usage="status [URL] [--hub HUB | --open [HUB] | --watch] [options]",
    examples=(
        "status",
        "status --open",
        "status --hub mcp.json",
        "status --watch",
        "status --wake git",
        "status https://hub.example.com --json",
    ),
    add_arguments=_add_arguments,
    check=_check,
    run=action("hubs.status"),
)
