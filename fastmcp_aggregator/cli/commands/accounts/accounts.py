"""`accounts`: who is logged in to which remote server."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_config, add_json, add_settings


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="list|revoke", choices=["list", "revoke"], help="what to do")
    add_config(parser)
    parser.add_argument("server", metavar="SERVER", nargs="?", help="revoke: the server's key in it")
    parser.add_argument("--principal", metavar="NAME", help="revoke: whose account, as `list` shows it (default all)")
    add_json(parser)
    add_settings(parser)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if (options.server is None) != (options.action == "list"):
        parser.error("`list` takes no SERVER" if options.server else "`revoke` needs a SERVER")
    if options.action == "list" and options.principal is not None:
        parser.error("--principal goes with revoke")


COMMAND = Command(
    name="accounts",
    summary="List and revoke the accounts at remote servers that people have logged in to.",
    usage="accounts list|revoke CONFIG [SERVER] [options]",
    examples=("accounts list mcp.json --json", "accounts revoke mcp.json crm --principal key:alice"),
    add_arguments=_add_arguments,
    check=_check,
    run=action("accounts.accounts"),
)
