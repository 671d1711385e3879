"""`list`: what every server of a config offers."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_config, add_json, add_view


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_json(parser)
    add_view(parser)


COMMAND = Command(
    name="list",
    summary="Start the servers of a config and list what they offer.",
    usage="list CONFIG [--json] [options]",
    examples=("list mcp.json", "list mcp.json --json | jq '.servers.time.tools[].name'"),
    add_arguments=_add_arguments,
    run=action("list"),
)
