"""`call`: one call of one tool."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_config, add_json, add_view


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("tool", metavar="SERVER:TOOL", help="the tool's public name, in any spelling")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        default=[],
        help="an argument, typed by the tool's input schema; repeat it to give a list",
    )
    parser.add_argument("--args", metavar="JSON", help="all arguments: '{…}', @FILE, or - for stdin")
    add_json(parser, "the whole result as JSON")
    add_view(parser)


COMMAND = Command(
    name="call",
    summary="Call one tool, and print what it answers.",
    usage="call CONFIG SERVER:TOOL [key=value ...] [options]",
    examples=(
        "call mcp.json time:get_current_time timezone=Europe/Paris",
        "call mcp.json files:write --args @arguments.json",
    ),
    add_arguments=_add_arguments,
    run=action("call"),
)
