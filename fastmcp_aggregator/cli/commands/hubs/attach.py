"""`attach`: serve one client by the hub of this user, which the first client starts."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_served, require_config


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_served(parser)
    parser.add_argument("--group", metavar="ID", help="serve this group alone")
    parser.add_argument("--hub", metavar="NAME", help="attach to the hub of this name, whatever else it serves")


COMMAND = Command(
    name="attach",
    summary="Serve a client on stdio by one hub for all clients of this user, which is started if there is none.",
    usage="attach CONFIG [options]",
    examples=("attach mcp.json --no-strict", "attach mcp.json --group web --hub work"),
    add_arguments=_add_arguments,
    check=require_config,
    run=action("hubs.attach"),
)
