"""`serve`: be one MCP server in front of all. It is the default, so its help is that of the program."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import PROGRAM, Command, action, add_environment, add_view


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="the `mcpServers` file")
    parser.add_argument("--config", dest="config_file", metavar="FILE", help="the same, as an option")
    add_environment(parser)
    parser.add_argument(
        "--transport", choices=["stdio", "http"], default="stdio", help="how clients connect (default stdio)"
    )
    parser.add_argument("--host", metavar="H", help="address to serve HTTP on (default 127.0.0.1)")
    parser.add_argument("--port", metavar="P", help="port to serve HTTP on (default 8000); 0 takes a free one")
    parser.add_argument("--group", metavar="ID", help="serve this group alone, and start only its servers")
    parser.add_argument("--name", metavar="NAME", help="server name shown to clients")
    parser.add_argument("--server-version", metavar="V", help="server version shown to clients")
    parser.add_argument(
        "--otel",
        dest="telemetry",
        action="store_const",
        const=True,
        help="export traces as the OTEL_* variables say (needs the extra `otel`)",
    )
    add_view(parser)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.config_file is not None:
        if options.config is not None:
            parser.error("give the config once: as CONFIG or with --config")
        options.config = options.config_file
    if options.config is None:
        parser.error(f"give the path of a config file, such as: {PROGRAM} config.json")
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
