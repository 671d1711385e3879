"""`logout`: the end of a login to a remote server."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_config, add_settings


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("server", metavar="SERVER", help="the server's key in it")
    add_settings(parser)


COMMAND = Command(
    name="logout",
    summary="Log the hub out of a remote server, and revoke its tokens there.",
    usage="logout CONFIG SERVER [options]",
    examples=("logout mcp.json docs",),
    add_arguments=_add_arguments,
    run=action("accounts.accounts", "logout"),
)
