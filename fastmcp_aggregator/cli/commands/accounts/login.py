"""`login`: the OAuth tokens of a remote server, got by a login in a browser."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_config, add_settings


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument("server", metavar="SERVER", help="the server's key in it")
    parser.add_argument(
        "--port",
        metavar="P",
        type=int,
        help="port on which the browser comes back (default: as set, or a free one)",
    )
    parser.add_argument(
        "--no-browser",
        dest="browser",
        action="store_false",
        help="open no browser: print the address, and read the address at which the browser ends",
    )
    add_settings(parser)


COMMAND = Command(
    name="login",
    summary="Log in to a remote server that asks for OAuth, in a browser.",
    usage="login CONFIG SERVER [options]",
    examples=("login mcp.json docs", "login mcp.json docs --no-browser"),
    add_arguments=_add_arguments,
    run=action("accounts.login"),
)
