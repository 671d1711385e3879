"""`pin`: the recorded tool definitions of all servers, and what has changed since."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_config, add_json, add_settings


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("--file", metavar="FILE", help="the pins file (default: the setting pins)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--diff", action="store_true", help="show what has changed, and write nothing")
    what.add_argument(
        "--approve", metavar="SERVER", nargs="*", help="record what these servers offer now, or all; after CONFIG"
    )
    add_json(parser)
    add_settings(parser)


COMMAND = Command(
    name="pin",
    summary="Record the tool definitions of all servers, and show or approve what has changed since.",
    usage="pin CONFIG [--diff | --approve [SERVER ...]] [options]",
    examples=("pin mcp.json --file pins.json", "pin mcp.json --file pins.json --diff"),
    add_arguments=_add_arguments,
    run=action("pin"),
)
