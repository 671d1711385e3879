"""`status`: how the servers of a running instance are."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_instance, add_json


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_instance(parser)
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
    summary="Show how the servers of a running HTTP instance are.",
    usage="status [URL] [--watch] [options]",
    examples=("status --watch", "status --wake git", "status https://hub.example.com --json"),
    add_arguments=_add_arguments,
    check=_check,
    run=action("status"),
)
