"""`check`: is the config right, is there what it needs, and what do clients make of its names?"""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_config, add_json, add_view


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--connect", action="store_true", help="start the servers, and check the names they offer")
    parser.add_argument("--all", action="store_true", help="names for each client, programs, versions, every finding")
    add_json(parser)
    add_view(parser)


COMMAND = Command(
    name="check",
    summary="Check a config and all that it needs, and show what clients make of its names.",
    usage="check CONFIG [--connect] [options]",
    examples=("check mcp.json", "check mcp.json --connect", "check mcp.json --all", "check mcp.json --json"),
    add_arguments=_add_arguments,
    run=action("check"),
)
