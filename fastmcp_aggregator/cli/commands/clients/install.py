"""`install`: the aggregator in the config of a client."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_client


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client(parser)
    parser.add_argument("--config", metavar="FILE", help="the `mcpServers` file that it is to serve")
    parser.add_argument("--env-file", metavar="FILE", help="the environment variables that the config needs")
    parser.add_argument("--settings", metavar="FILE", help="settings file, TOML or JSON")
    parser.add_argument("--groups", metavar="FILE", help="groups file")
    parser.add_argument("--group", metavar="ID", help="serve this group alone")
    parser.add_argument("--hub", metavar="NAME", help="attach to the hub of this name, as other clients do")
    parser.add_argument("--own", action="store_true", help="give the client servers of its own, not those of the hub")
    parser.add_argument(
        "--move", action="store_true", help="take servers out of the client's config that the aggregator serves too"
    )


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.own and options.hub is not None:
        parser.error("--own gives the client servers of its own, --hub those of a hub: give one of them")


COMMAND = Command(
    name="install",
    summary="Put the aggregator into the config of an MCP client.",
    usage="install CLIENT --config FILE [options]",
    examples=(
        "install claude-desktop --config mcp.json",
        "install cursor --config mcp.json --env-file mcp.env --yes",
        "install vscode --config mcp.json --hub work",
    ),
    add_arguments=_add_arguments,
    check=_check,
    run=action("install"),
)
