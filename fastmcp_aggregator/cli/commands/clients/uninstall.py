"""`uninstall`: the aggregator out of the config of a client again."""

from __future__ import annotations

from fastmcp_aggregator.cli.parser.command import Command, action, add_client

COMMAND = Command(
    name="uninstall",
    summary="Take the aggregator out of the config of an MCP client.",
    usage="uninstall CLIENT [options]",
    examples=("uninstall claude-desktop",),
    add_arguments=add_client,
    run=action("install", "run_uninstall"),
)
