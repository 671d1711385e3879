"""`serve`: be one MCP server in front of all. It is the default, so its help is that of the program."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_served, require_config


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_served(parser)
    parser.add_argument(
        "--transport", choices=["stdio", "http"], default="stdio", help="how clients connect (default stdio)"
    )
    parser.add_argument("--host", metavar="H", help="address to serve HTTP on (default 127.0.0.1)")
    parser.add_argument("--port", metavar="P", help="port to serve HTTP on (default 8000); 0 takes a free one")
    parser.add_argument("--group", metavar="ID", help="serve this group alone, and start only its servers")


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    require_config(parser, options)
    if options.transport == "stdio" and (options.host is not None or options.port is not None):
        parser.error("--host and --port go with --transport http")


COMMAND = Command(
    name="serve",
    summary="Serve all MCP servers of an `mcpServers` file as one MCP server.",
    usage="[serve] CONFIG [options]",
    examples=("mcp.json --no-strict", "mcp.json --transport http --port 8000 --groups group.json"),
    add_arguments=_add_arguments,
    check=_check,
    run=action("serve"),
)
